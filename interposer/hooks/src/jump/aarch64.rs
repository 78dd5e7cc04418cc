//! AArch64, procedure call standard of Arm. Code between a caller and the called function may
//! change x16 and x17.

/// The body of a launch wrapper; see the one for x86-64. All argument registers are kept; stack
/// arguments are never touched. No launch takes floating-point arguments.
macro_rules! launch_jump {
    ($name:ident, plain) => {
        $crate::jump::launch_jump!(@body launch $name, [];)
    };
    ($name:ident, graph) => {
        $crate::jump::launch_jump!(@body launch $name,
            ["adrp x16, {allocating}",
             "ldr w16, [x16, :lo12:{allocating}]",
             "cbnz w16, 2f"];
            allocating = sym vgpu_slice::graphs::ALLOCATING,
        )
    };
    ($name:ident, stream_op) => {
        $crate::jump::launch_jump!(@body stream_op $name, [];)
    };
    (@body $slow_path:ident $name:ident, [$($first:expr),*]; $($operand:tt)*) => {
        core::arch::naked_asm!(
            $($first,)*
            "adrp x16, {limits}",
            "ldr x16, [x16, :lo12:{limits}]",
            "ldr w16, [x16]",
            "adrp x17, {grants}",
            "ldr x17, [x17, :lo12:{grants}]",
            "ldr w17, [x17]",
            "orr w16, w16, w17",
            "cbnz w16, 2f",
            "adrp x16, {real}",
            "add x16, x16, :lo12:{real}",
            "ldr x16, [x16, #{offset}]",
            "cmp x16, #1",
            "b.ls 2f",
            "br x16",
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
