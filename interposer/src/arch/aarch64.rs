//! AArch64, procedure call standard of Arm. x16 and x17 are free between a caller and what it calls.

/// The body of a launch wrapper: through [`crate::driver::REAL`], or by way of
/// [`crate::driver::jump_target`] the first time. All argument registers are kept; stack arguments
/// are never touched. No launch takes floating-point arguments.
macro_rules! tail_jump {
    ($name:ident) => {
        core::arch::naked_asm!(
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
            "mov x0, #{index}",
            "bl {target}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldp x2, x3, [sp, #32]",
            "ldp x4, x5, [sp, #48]",
            "ldp x6, x7, [sp, #64]",
            "ldr x8, [sp, #80]",
            "ldp x29, x30, [sp], #96",
            "br x16",
            real = sym $crate::driver::REAL,
            offset = const $crate::table::Symbol::$name as usize * 8,
            index = const $crate::table::Symbol::$name as usize,
            target = sym $crate::driver::jump_target,
        )
    };
}
pub(crate) use tail_jump;

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
