//! x86-64, System V calling convention.
//!
//! Tools such as UCX put a jump of 5 bytes over the start of a function, and move the instructions
//! that were there. They know few instructions (ucx 6038). So each wrapper starts with one of 5
//! bytes that they know and that can be anywhere: `mov eax` with a constant. rax has no argument.

/// The body of a launch wrapper. If launches need no admission, it jumps to the driver's function,
/// whose address is in [`vgpu_driver::symbols::REAL`]. Otherwise it calls [`crate::launch`], which
/// returns the address to jump to. All six argument registers are kept; stack arguments are never
/// touched.
///
/// The second argument of the macro selects the kind of wrapper: `plain` for kernels, `graph` for
/// graphs, which may allocate, and `stream_op` for other work on streams.
macro_rules! launch_jump {
    ($name:ident, plain) => {
        $crate::jump::launch_jump!(@body launch $name, [];)
    };
    ($name:ident, graph) => {
        $crate::jump::launch_jump!(@body launch $name,
            ["cmp dword ptr [rip + {allocating}], 0", "jne 2f"];
            allocating = sym vgpu_slice::graphs::ALLOCATING,
        )
    };
    ($name:ident, stream_op) => {
        $crate::jump::launch_jump!(@body stream_op $name, [];)
    };
    (@body $slow_path:ident $name:ident, [$($first:expr),*]; $($operand:tt)*) => {
        core::arch::naked_asm!(
            "mov eax, 1", // for tools that move it
            $($first,)*
            "mov rax, qword ptr [rip + {limits}]",
            "mov eax, dword ptr [rax]",
            "mov r11, qword ptr [rip + {grants}]",
            "or eax, dword ptr [r11]",
            "jnz 2f",
            "mov rax, qword ptr [rip + {real} + {offset}]",
            "cmp rax, 1",
            "jbe 2f",
            "jmp rax",
            "2:",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "sub rsp, 8", // 7 words and the return address: 16-byte aligned for the call
            "lea rdi, [rip + {row}]",
            "mov rsi, rsp",
            "call {slow_path}",
            "add rsp, 8",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            limits = sym vgpu_compute::fast_path::LIMITS,
            grants = sym vgpu_compute::fast_path::GRANTS,
            real = sym vgpu_driver::symbols::REAL,
            offset = const vgpu_driver::symbols::Symbol::$name as usize * 8,
            row = sym $crate::boundary::rows::$name,
            slow_path = sym $crate::launch::$slow_path,
            $($operand)*
        )
    };
}
pub(crate) use launch_jump;

/// The body of every other wrapper: jumps to `$then` if the caller is known to be the program.
/// Otherwise [`crate::boundary::destination`] decides. All argument registers are kept; stack
/// arguments are never touched.
macro_rules! entry_jump {
    ($name:ident, $then:path) => {
        core::arch::naked_asm!(
            "mov eax, {mask}", // tools may move it
            "mov r11, qword ptr [rsp]", // the return address, in the caller
            "and eax, r11d",
            "lea r10, [rip + {known}]",
            "cmp r11, qword ptr [r10 + rax]",
            "je {then}",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "sub rsp, 8", // 7 words and the return address: 16-byte aligned for the call
            "mov rdi, r11",
            "mov esi, {symbol}",
            "lea rdx, [rip + {then}]",
            "call {destination}",
            "add rsp, 8",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            mask = const vgpu_driver::callers::MASK,
            known = sym vgpu_driver::callers::KNOWN,
            symbol = const vgpu_driver::symbols::Symbol::$name as usize,
            then = sym $then,
            destination = sym $crate::boundary::destination,
        )
    };
}
pub(crate) use entry_jump;

/// The arguments of a launch, as the wrapper above saves them.
#[repr(C)]
pub(crate) struct Frame {
    _aligning: usize,
    /// r9, r8, rcx, rdx, rsi, rdi.
    registers: [usize; 6],
    return_address: usize,
    stack: [usize; 5],
}

impl Frame {
    /// Where the launch returns to, in the caller.
    pub(crate) fn return_address(&self) -> usize {
        self.return_address
    }

    /// The argument at this position. A launch has at most 11. Beyond a function's last argument
    /// this returns whatever the caller's stack holds.
    pub(crate) fn argument(&self, position: usize) -> usize {
        let argument = match position.checked_sub(6) {
            None => self.registers.get(5 - position),
            Some(on_stack) => self.stack.get(on_stack),
        };
        argument.copied().unwrap_or_default()
    }
}

/// The body of our dlsym and dlvsym.
///
/// glibc reads the caller's return address for RTLD_NEXT and RTLD_DEFAULT. So for a name that is
/// not hooked, this jumps to the real function and changes neither registers nor stack. A name that
/// begins with c, n or d may be hooked. It goes to `$decide(handle, name, version, caller)`. If rdx
/// is not 0 afterwards, the address in rax is the result; otherwise the real function decides.
macro_rules! dlsym_entry {
    ($real:path, $find:path, $decide:path) => {
        core::arch::naked_asm!(
            "mov eax, 0", // for tools that move it
            "test rsi, rsi",
            "jz 2f",
            "mov al, byte ptr [rsi]",
            "cmp al, 'c'", // cu…
            "je 3f",
            "cmp al, 'n'", // nvml…
            "je 3f",
            "cmp al, 'd'", // dlsym, dlvsym
            "je 3f",
            "2:", // not hooked: on to the real one
            "mov rax, qword ptr [rip + {real}]",
            "test rax, rax",
            "jz 4f",
            "jmp rax",
            "3:",
            "push rdi",
            "push rsi",
            "push rdx",
            "mov rcx, qword ptr [rsp + 24]", // the return address, in the caller
            "call {decide}", // 3 words and the return address: aligned
            "test rdx, rdx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jz 2b",
            "ret",
            "4:", // the first call in this process
            "push rdi",
            "push rsi",
            "push rdx",
            "call {find}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            real = sym $real,
            find = sym $find,
            decide = sym $decide,
        )
    };
}
pub(crate) use dlsym_entry;
