//! x86-64, System V calling convention.

/// The body of a launch wrapper: where launches need not pass the gate, a jump through
/// [`crate::driver::REAL`]. Where they do, the same jump where the ticket can pay for the launch
/// (`ticket`: arguments like cuLaunchKernel's; `config_ticket`: like cuLaunchKernelEx's), and else by
/// way of [`crate::compute::gate`], which says where to. `beside`: what is no launch and comes by there
/// all the same. All six argument registers are kept; stack arguments are never touched.
macro_rules! launch_jump {
    ($name:ident, ticket) => {
        $crate::arch::launch_jump!(@ticket $name,
            [], "rdi", "edi", "esi", "edx", "ecx",
            [], "ecx",
            "qword ptr [rsp + 24]") // the stream, the third argument on the stack
    };
    ($name:ident, config_ticket) => {
        $crate::arch::launch_jump!(@ticket $name,
            ["test rdi, rdi", "jz 2f", // no configuration: the driver will refuse
             "mov r8d, dword ptr [rdi]", "mov r9d, dword ptr [rdi + 4]"], // no arguments in these
            "rsi", "esi", "r8d", "r9d", "dword ptr [rdi + 8]",
            ["mov eax, dword ptr [rdi + 8]"], "eax",
            "qword ptr [rdi + 32]")
    };
    (@ticket $name:ident, [$($first:literal),*], $function:literal, $function32:literal,
     $x:literal, $y:literal, $z:literal,
     [$($load_z:literal),*], $loaded_z:literal, $stream:literal) => {
        $crate::arch::launch_jump!(@body launch $name,
            $($first,)*
            "sub rsp, 8", // aligned for the call, which keeps every register but rax
            "lea rax, [rip + hami_launch_ticket@tlsdesc]",
            "call qword ptr [rax + hami_launch_ticket@tlscall]",
            "add rsp, 8",
            "mov r11, qword ptr fs:[0]",
            "add r11, rax",
            "mov eax, dword ptr [rip + {epoch}]",
            "cmp dword ptr [r11 + {epoch_of}], eax",
            "jne 2f",
            concat!("mov rax, ", $stream),
            "cmp qword ptr [r11 + {stream_of}], rax",
            "jne 2f",
            // The line of its kind, from the hash of grid and function.
            concat!("imul eax, ", $z, ", {hash}"),
            concat!("add eax, ", $y),
            "imul eax, eax, {hash}",
            concat!("add eax, ", $x),
            "imul eax, eax, {hash}",
            concat!("add eax, ", $function32),
            "imul eax, eax, {hash}",
            "shr eax, {hash_shift}",
            "shl eax, 6",
            "mov r10, qword ptr [r11 + {kinds_of}]",
            "add r10, rax",
            $($load_z,)*
            $crate::arch::launch_jump!(@compare "6f", $function, $x, $y, $loaded_z),
            "5:",
            "mov rax, qword ptr [r11 + {left_of}]",
            "sub rax, qword ptr [r10 + {price_of}]",
            "js 2f",
            "test eax, eax",
            "js 2f",
            "mov qword ptr [r11 + {left_of}], rax",
            "jmp 3b",
            "6:", // the other kind in the line
            "add r10, 32",
            $crate::arch::launch_jump!(@compare "2f", $function, $x, $y, $loaded_z),
            "jmp 5b";
            epoch = sym $crate::compute::ticket::EPOCH,
            epoch_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, epoch),
            stream_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, stream),
            kinds_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, kinds),
            left_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, left),
            function_of = const core::mem::offset_of!($crate::compute::batch::Kind, function),
            grid_of = const core::mem::offset_of!($crate::compute::batch::Kind, grid),
            price_of = const core::mem::offset_of!($crate::compute::batch::Kind, price),
            hash = const $crate::compute::batch::HASH.cast_signed(),
            hash_shift = const $crate::compute::batch::HASH_SHIFT,
        )
    };
    // Jumps there unless this is the kind at r10.
    (@compare $unlike:literal, $function:literal, $x:literal, $y:literal, $z:literal) => {
        concat!(
            "cmp qword ptr [r10 + {function_of}], ", $function, "\njne ", $unlike,
            "\ncmp dword ptr [r10 + {grid_of}], ", $x, "\njne ", $unlike,
            "\ncmp dword ptr [r10 + {grid_of} + 4], ", $y, "\njne ", $unlike,
            "\ncmp dword ptr [r10 + {grid_of} + 8], ", $z, "\njne ", $unlike,
        )
    };
    ($name:ident, plain) => {
        $crate::arch::launch_jump!(@body launch $name, ;)
    };
    ($name:ident, beside) => {
        $crate::arch::launch_jump!(@body beside $name, ;)
    };
    (@body $gate:ident $name:ident, $($ticket:expr),* ; $($operand:tt)*) => {
        core::arch::naked_asm!(
            "mov rax, qword ptr [rip + {limits}]",
            "mov eax, dword ptr [rax]",
            "mov r11, qword ptr [rip + {grants}]",
            "or eax, dword ptr [r11]",
            "jnz 4f",
            "3:",
            "mov rax, qword ptr [rip + {real} + {offset}]",
            "cmp rax, 1",
            "jbe 2f",
            "jmp rax",
            "4:",
            $($ticket,)*
            "2:",
            "push rdi",
            "push rsi",
            "push rdx",
            "push rcx",
            "push r8",
            "push r9",
            "sub rsp, 8", // 7 words and the return address: 16-byte aligned for the call
            "mov edi, {index}",
            "mov rsi, rsp",
            "call {gate}",
            "add rsp, 8",
            "pop r9",
            "pop r8",
            "pop rcx",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "jmp rax",
            limits = sym $crate::compute::door::LIMITS,
            grants = sym $crate::compute::door::GRANTS,
            real = sym $crate::driver::REAL,
            offset = const $crate::table::Symbol::$name as usize * 8,
            index = const $crate::table::Symbol::$name as usize,
            gate = sym $crate::compute::gate::$gate,
            $($operand)*
        )
    };
}
pub(crate) use launch_jump;

/// A launch's arguments, as the wrapper above has saved them.
#[repr(C)]
pub(crate) struct Frame {
    _aligning: usize,
    /// r9, r8, rcx, rdx, rsi, rdi.
    registers: [usize; 6],
    _return_address: usize,
    stack: [usize; 5],
}

impl Frame {
    /// The argument in this place. A launch has 11 at most; one that it does not have is whatever
    /// its caller's stack holds.
    pub(crate) fn argument(&self, place: usize) -> usize {
        let place = match place.checked_sub(6) {
            None => self.registers.get(5 - place),
            Some(place) => self.stack.get(place),
        };
        place.copied().unwrap_or_default()
    }
}

core::arch::global_asm!(
    ".section .tbss.hami_launch_ticket,\"awT\",@nobits",
    ".p2align 6",
    ".globl hami_launch_ticket",
    ".hidden hami_launch_ticket",
    ".type hami_launch_ticket, @object",
    ".size hami_launch_ticket, {size}",
    "hami_launch_ticket:",
    ".zero {size}",
    ".text",
    size = const crate::compute::ticket::SIZE,
);

/// This thread's launch ticket.
#[unsafe(naked)]
pub(crate) extern "C" fn ticket() -> *mut crate::compute::ticket::Ticket {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "lea rax, [rip + hami_launch_ticket@tlsdesc]",
        "call qword ptr [rax + hami_launch_ticket@tlscall]",
        "add rax, qword ptr fs:[0]",
        "add rsp, 8",
        "ret",
    )
}

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
