//! AArch64, procedure call standard of Arm. x16 and x17 are free between a caller and what it calls.

/// The body of a launch wrapper; see the x86-64 one. All argument registers are kept; stack arguments
/// are never touched. No launch takes floating-point arguments.
macro_rules! launch_jump {
    ($name:ident, ticket) => {
        $crate::arch::launch_jump!(@body launch $name,
            "stp x0, x1, [sp, #-32]!", // the call keeps every other register
            "str x30, [sp, #16]",
            "adrp x0, :tlsdesc:hami_launch_ticket",
            "ldr x1, [x0, :tlsdesc_lo12:hami_launch_ticket]",
            "add x0, x0, :tlsdesc_lo12:hami_launch_ticket",
            ".tlsdesccall hami_launch_ticket",
            "blr x1",
            "mrs x16, tpidr_el0",
            "add x16, x16, x0",
            "ldr x30, [sp, #16]",
            "ldp x0, x1, [sp], #32",
            "ldr x17, [x16]",
            "cmp x17, x0",
            "b.ne 2f",
            "ldr x17, [sp]", // the stream, the first argument on the stack
            "ldr x9, [x16, #8]",
            "cmp x17, x9",
            "b.ne 2f",
            "ldp w17, w9, [x16, #16]",
            "cmp w17, w1",
            "b.ne 2f",
            "cmp w9, w2",
            "b.ne 2f",
            "ldp w17, w9, [x16, #24]",
            "cmp w17, w3",
            "b.ne 2f",
            "adrp x10, {epoch}",
            "ldr w10, [x10, :lo12:{epoch}]",
            "cmp w9, w10",
            "b.ne 2f",
            "ldr w17, [x16, #32]",
            "subs w17, w17, #1",
            "str w17, [x16, #32]",
            "b.cs 3b";
            epoch = sym $crate::compute::ticket::EPOCH,
        )
    };
    ($name:ident, plain) => {
        $crate::arch::launch_jump!(@body launch $name, ;)
    };
    ($name:ident, beside) => {
        $crate::arch::launch_jump!(@body beside $name, ;)
    };
    (@body $gate:ident $name:ident, $($ticket:literal),* ; $($operand:tt)*) => {
        core::arch::naked_asm!(
            "adrp x16, {limits}",
            "ldr x16, [x16, :lo12:{limits}]",
            "ldr w16, [x16]",
            "adrp x17, {grants}",
            "ldr x17, [x17, :lo12:{grants}]",
            "ldr w17, [x17]",
            "orr w16, w16, w17",
            "cbnz w16, 4f",
            "3:",
            "adrp x16, {real}",
            "add x16, x16, :lo12:{real}",
            "ldr x16, [x16, #{offset}]",
            "cmp x16, #1",
            "b.ls 2f",
            "br x16",
            "4:",
            $($ticket,)*
            "2:",
            "stp x29, x30, [sp, #-96]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "str x8, [sp, #80]",
            "mov x0, #{index}",
            "mov x1, sp",
            "bl {gate}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldr x8, [sp, #80]",
            "ldp x29, x30, [sp], #96",
            "br x16",
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
    _frame_and_return: [usize; 2],
    registers: [usize; 8],
    _x8: [usize; 2],
    stack: [usize; 3],
}

impl Frame {
    /// The argument in this place. A launch has 11 at most; one that it does not have is whatever
    /// its caller's stack holds.
    pub(crate) fn argument(&self, place: usize) -> usize {
        let place = match place.checked_sub(8) {
            None => self.registers.get(place),
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
        "stp x29, x30, [sp, #-16]!",
        "adrp x0, :tlsdesc:hami_launch_ticket",
        "ldr x1, [x0, :tlsdesc_lo12:hami_launch_ticket]",
        "add x0, x0, :tlsdesc_lo12:hami_launch_ticket",
        ".tlsdesccall hami_launch_ticket",
        "blr x1",
        "mrs x1, tpidr_el0",
        "add x0, x1, x0",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}

/// The body of our dlsym and dlvsym; see the x86-64 one for the reasons.
macro_rules! dlsym_entry {
    ($real:path, $find:path, $decide:path) => {
        core::arch::naked_asm!(
            "cbz x1, 2f",
            "ldrb w16, [x1]",
            "cmp w16, #99", // cu…
            "b.eq 3f",
            "cmp w16, #110", // nvml…
            "b.eq 3f",
            "cmp w16, #100", // dlsym, dlvsym
            "b.eq 3f",
            "2:", // not ours: on to the real one
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 4f",
            "br x16",
            "3:",
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x3, x30", // the return address: who asks
            "bl {decide}",
            "mov x16, x0",
            "mov x17, x1",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "cbz x17, 2b",
            "mov x0, x16",
            "ret",
            "4:", // the first call in this process
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {find}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "br x16",
            real = sym $real,
            find = sym $find,
            decide = sym $decide,
        )
    };
}
pub(crate) use dlsym_entry;
