//! x86-64, System V calling convention.

/// The body of a launch wrapper: through [`crate::driver::REAL`], or by way of
/// [`crate::driver::jump_target`] the first time. All six argument registers are kept; stack
/// arguments are never touched.
macro_rules! tail_jump {
    ($name:ident) => {
        core::arch::naked_asm!(
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
            "mov edi, {index}",
            "call {target}",
            "add rsp, 8",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            real = sym $crate::driver::REAL,
            offset = const $crate::table::Symbol::$name as usize * 8,
            index = const $crate::table::Symbol::$name as usize,
            target = sym $crate::driver::jump_target,
        )
    };
}
pub(crate) use tail_jump;

/// The body of our dlsym and dlvsym.
///
/// glibc reads the caller's return address to give RTLD_NEXT and RTLD_DEFAULT their meaning, so every
/// name that is not ours is a jump to the real function with everything in place. Names that begin
/// like ours go to `$decide(handle, name, version, caller)`, which answers in rax and, in rdx, whether
/// the answer stands.
macro_rules! dlsym_entry {
    ($real:path, $find:path, $decide:path) => {
        core::arch::naked_asm!(
            "test rsi, rsi",
            "jz 2f",
            "mov al, byte ptr [rsi]",
            "cmp al, 'c'", // cu…
            "je 3f",
            "cmp al, 'n'", // nvml…
            "je 3f",
            "cmp al, 'd'", // dlsym, dlvsym
            "je 3f",
            "2:", // not ours: on to the real one
            "mov rax, qword ptr [rip + {real}]",
            "test rax, rax",
            "jz 4f",
            "jmp rax",
            "3:",
            "push rdi",
            "push rsi",
            "push rdx",
            "mov rcx, qword ptr [rsp + 24]", // the return address: who asks
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
