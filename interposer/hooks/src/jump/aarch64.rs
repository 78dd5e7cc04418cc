//! AArch64, procedure call standard of Arm. Code between a caller and the called function may
//! change x16 and x17.

/// The body of a launch wrapper; see the one for x86-64. All argument registers are kept; stack
/// arguments are never touched. No launch takes floating-point arguments.
macro_rules! launch_jump {
    ($name:ident, budget $word:ident) => {
        $crate::jump::launch_jump!(@budget $name, $word,
            [], ["mov x14, x0", "mov w11, w1", "mov w12, w2", "mov w13, w3"],
            "[sp]") // the stream, the first argument on the stack
    };
    ($name:ident, config_budget $word:ident) => {
        $crate::jump::launch_jump!(@budget $name, $word,
            ["cbz x0, 2f"], // no configuration: the driver will refuse
            ["mov x14, x1", "ldp w11, w12, [x0]", "ldr w13, [x0, #8]"],
            "[x0, #32]")
    };
    (@budget $name:ident, $word:ident, [$($first:literal),*], [$($kind:literal),*], $stream:literal) => {
        $crate::jump::launch_jump!(@body launch $name, [],
            $($first,)*
            "stp x0, x1, [sp, #-32]!", // the call keeps every other register
            "str x30, [sp, #16]",
            "adrp x0, :tlsdesc:hami_launch_budget",
            "ldr x1, [x0, :tlsdesc_lo12:hami_launch_budget]",
            "add x0, x0, :tlsdesc_lo12:hami_launch_budget",
            ".tlsdesccall hami_launch_budget",
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
            $crate::jump::launch_jump!(@compare),
            "b.eq 6f",
            "add x15, x15, #32", // the other kind in the line
            $crate::jump::launch_jump!(@compare),
            "b.ne 2f",
            "6:",
            "ldr x9, [x16, #{left_of}]",
            "ldr x10, [x15, #{estimate_of}]",
            "sub x9, x9, x10",
            "tst x9, #0x8000000080000000",
            "b.ne 2f",
            "str x9, [x16, #{left_of}]",
            "b 3b";
            epoch = sym vgpu_compute::budget::EPOCH,
            epoch_of = const core::mem::offset_of!(vgpu_compute::budget::Budget, epoch),
            stream_of = const core::mem::offset_of!(vgpu_compute::budget::Budget, $word),
            kinds_of = const core::mem::offset_of!(vgpu_compute::budget::Budget, kinds),
            left_of = const core::mem::offset_of!(vgpu_compute::budget::Budget, left),
            function_of = const core::mem::offset_of!(vgpu_compute::budget::kinds::Kind, function),
            grid_of = const core::mem::offset_of!(vgpu_compute::budget::kinds::Kind, grid),
            estimate_of = const core::mem::offset_of!(vgpu_compute::budget::kinds::Kind, estimate),
            hash = const vgpu_compute::budget::kinds::HASH,
            hash_shift = const vgpu_compute::budget::kinds::HASH_SHIFT,
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
        $crate::jump::launch_jump!(@body launch $name, [], ;)
    };
    ($name:ident, graph) => {
        $crate::jump::launch_jump!(@body launch $name,
            ["adrp x16, {allocating}",
             "ldr w16, [x16, :lo12:{allocating}]",
             "cbnz w16, 2f"], ;
            allocating = sym vgpu_slice::graphs::ALLOCATING,
        )
    };
    ($name:ident, stream_op) => {
        $crate::jump::launch_jump!(@body stream_op $name, [], ;)
    };
    (@body $slow_path:ident $name:ident, [$($first:expr),*], $($budget:expr),* ;
     $($operand:tt)*) => {
        core::arch::naked_asm!(
            $($first,)*
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
            $($budget,)*
            "2:",
            "stp x29, x30, [sp, #-96]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "str x8, [sp, #80]",
            "adrp x0, {row}",
            "add x0, x0, :lo12:{row}",
            "mov x1, sp",
            "bl {slow_path}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldr x8, [sp, #80]",
            "ldp x29, x30, [sp], #96",
            "br x16",
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

/// The body of every other wrapper; see the one for x86-64.
macro_rules! entry_jump {
    ($name:ident, $then:path) => {
        core::arch::naked_asm!(
            "adrp x16, {known}",
            "add x16, x16, :lo12:{known}",
            "and x17, x30, #{mask}", // the return address, in the caller
            "ldr x16, [x16, x17]",
            "cmp x16, x30",
            "b.ne 2f",
            "b {then}",
            "2:",
            "stp x29, x30, [sp, #-96]!",
            "stp x0, x1, [sp, #16]",
            "stp x2, x3, [sp, #32]",
            "stp x4, x5, [sp, #48]",
            "stp x6, x7, [sp, #64]",
            "str x8, [sp, #80]",
            "mov x0, x30",
            "mov x1, #{symbol}",
            "adrp x2, {then}",
            "add x2, x2, :lo12:{then}",
            "bl {destination}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldr x8, [sp, #80]",
            "ldp x29, x30, [sp], #96",
            "br x16",
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
    _frame: usize,
    return_address: usize,
    registers: [usize; 8],
    _x8: [usize; 2],
    stack: [usize; 3],
}

impl Frame {
    /// Where the launch returns to, in the caller.
    pub(crate) fn return_address(&self) -> usize {
        self.return_address
    }

    /// The argument at this position. A launch has at most 11. Beyond a function's last argument
    /// this returns whatever the caller's stack holds.
    pub(crate) fn argument(&self, position: usize) -> usize {
        let argument = match position.checked_sub(8) {
            None => self.registers.get(position),
            Some(on_stack) => self.stack.get(on_stack),
        };
        argument.copied().unwrap_or_default()
    }
}

/// The body of our dlsym and dlvsym; see the one for x86-64 for the reasons.
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
            "2:", // not hooked: on to the real one
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "cbz x16, 4f",
            "br x16",
            "3:",
            "stp x29, x30, [sp, #-48]!",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "mov x3, x30", // the return address, in the caller
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
