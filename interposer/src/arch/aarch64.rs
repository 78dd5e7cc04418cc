//! AArch64, procedure call standard of Arm. x16 and x17 are free between a caller and what it calls.

/// The body of a launch wrapper; see the x86-64 one. All argument registers are kept; stack arguments
/// are never touched. No launch takes floating-point arguments.
macro_rules! launch_jump {
    ($name:ident, ticket) => {
        $crate::arch::launch_jump!(@ticket $name,
            [], ["mov x14, x0", "mov w11, w1", "mov w12, w2", "mov w13, w3"],
            "[sp]") // the stream, the first argument on the stack
    };
    ($name:ident, config_ticket) => {
        $crate::arch::launch_jump!(@ticket $name,
            ["cbz x0, 2f"], // no configuration: the driver will refuse
            ["mov x14, x1", "ldp w11, w12, [x0]", "ldr w13, [x0, #8]"],
            "[x0, #32]")
    };
    (@ticket $name:ident, [$($first:literal),*], [$($kind:literal),*], $stream:literal) => {
        $crate::arch::launch_jump!(@body launch $name,
            $($first,)*
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
            "adrp x17, {epoch}",
            "ldr w17, [x17, :lo12:{epoch}]",
            "ldr w9, [x16, #{epoch_of}]",
            "cmp w17, w9",
            "b.ne 2f",
            concat!("ldr x17, ", $stream),
            "ldr x9, [x16, #{stream_of}]",
            "cmp x17, x9",
            "b.ne 2f",
            $($kind,)* // x14: the function; w11, w12, w13: the grid
            // The line of its kind, from the hash of grid and function.
            "mov w9, #({hash} & 0xffff)",
            "movk w9, #({hash} >> 16), lsl #16",
            "madd w10, w13, w9, w12",
            "madd w10, w10, w9, w11",
            "madd w10, w10, w9, w14",
            "mul w10, w10, w9",
            "lsr w10, w10, #{hash_shift}",
            "ldr x15, [x16, #{kinds_of}]",
            "add x15, x15, x10, lsl #6",
            $crate::arch::launch_jump!(@compare),
            "b.eq 6f",
            "add x15, x15, #32", // the other kind in the line
            $crate::arch::launch_jump!(@compare),
            "b.ne 2f",
            "6:",
            "ldr x9, [x16, #{left_of}]",
            "ldr x10, [x15, #{price_of}]",
            "sub x9, x9, x10",
            "tst x9, #0x8000000080000000",
            "b.ne 2f",
            "str x9, [x16, #{left_of}]",
            "b 3b";
            epoch = sym $crate::compute::ticket::EPOCH,
            epoch_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, epoch),
            stream_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, stream),
            kinds_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, kinds),
            left_of = const core::mem::offset_of!($crate::compute::ticket::Ticket, left),
            function_of = const core::mem::offset_of!($crate::compute::batch::Kind, function),
            grid_of = const core::mem::offset_of!($crate::compute::batch::Kind, grid),
            price_of = const core::mem::offset_of!($crate::compute::batch::Kind, price),
            hash = const $crate::compute::batch::HASH,
            hash_shift = const $crate::compute::batch::HASH_SHIFT,
        )
    };
    // Whether this is the kind at x15.
    (@compare) => {
        "ldr x9, [x15, #{function_of}]\n\
         ldp w10, w17, [x15, #{grid_of}]\n\
         cmp x9, x14\n\
         ldr w9, [x15, #({grid_of} + 8)]\n\
         ccmp w10, w11, #0, eq\n\
         ccmp w17, w12, #0, eq\n\
         ccmp w9, w13, #0, eq"
    };
    ($name:ident, plain) => {
        $crate::arch::launch_jump!(@body launch $name, ;)
    };
    ($name:ident, beside) => {
        $crate::arch::launch_jump!(@body beside $name, ;)
    };
    (@body $gate:ident $name:ident, $($ticket:expr),* ; $($operand:tt)*) => {
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
