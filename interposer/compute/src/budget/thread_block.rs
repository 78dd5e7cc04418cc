//! The block of memory in each thread that holds its launch budget.
//!
//! Assembly must reach it in two instructions, which is not possible for a thread-local of Rust. So
//! the block is a thread-local symbol, `hami_launch_budget`, that the launch wrappers name as well.

/// The bytes of the block. They are initially zero.
pub(super) const SIZE: usize = 64;

core::arch::global_asm!(
    ".section .tbss.hami_launch_budget,\"awT\",@nobits",
    ".p2align 6",
    ".globl hami_launch_budget",
    ".hidden hami_launch_budget",
    ".type hami_launch_budget, @object",
    ".size hami_launch_budget, {size}",
    "hami_launch_budget:",
    ".zero {size}",
    ".text",
    size = const SIZE,
);

/// The address of this thread's block.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(super) extern "C" fn address() -> *mut u8 {
    core::arch::naked_asm!(
        "sub rsp, 8",
        "lea rax, [rip + hami_launch_budget@tlsdesc]",
        "call qword ptr [rax + hami_launch_budget@tlscall]",
        "add rax, qword ptr fs:[0]",
        "add rsp, 8",
        "ret",
    )
}

/// The address of this thread's block.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(super) extern "C" fn address() -> *mut u8 {
    core::arch::naked_asm!(
        "stp x29, x30, [sp, #-16]!",
        "adrp x0, :tlsdesc:hami_launch_budget",
        "ldr x1, [x0, :tlsdesc_lo12:hami_launch_budget]",
        "add x0, x0, :tlsdesc_lo12:hami_launch_budget",
        ".tlsdesccall hami_launch_budget",
        "blr x1",
        "mrs x1, tpidr_el0",
        "add x0, x1, x0",
        "ldp x29, x30, [sp], #16",
        "ret",
    )
}
