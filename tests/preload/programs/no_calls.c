// build: -shared -fPIC -ldl
/* Defines the functions of the C library that libvgpu.so calls by name: FUNCTIONS is X(name) for each. A call
 * of one from libvgpu.so is named and ends the process with code 99; all other calls go on to the next
 * definition. BEFORE and AFTER are the sizes of the library's code before and after its dlsym. */
#include <dlfcn.h>
#include <stddef.h>
#include <sys/syscall.h>

#define X(name) #name,
static const char *const names[] = {FUNCTIONS};
#undef X

static void *next[sizeof names / sizeof *names];

static long call(long number, long first, const void *second, long third)
{
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third)
                     : "rcx", "r11", "memory");
    return result;
}

static void refuse(const char *name)
{
    long length = 0;
    while (((volatile const char *)name)[length])
        length++;
    call(SYS_write, 2, "libvgpu.so called ", 18);
    call(SYS_write, 2, name, length);
    call(SYS_write, 2, "\n", 1);
    call(SYS_exit_group, 99, 0, 0);
}

__attribute__((used)) static void *next_of(long index, const char *caller)
{
    const char *ours = (const char *)dlsym;
    if (caller >= ours - BEFORE && caller < ours + AFTER)
        refuse(names[index]);
    if (!next[index])
        next[index] = dlsym(RTLD_NEXT, names[index]);
    return next[index];
}

/* A lookup that fails frees memory later: "free" must be known by then, so the test names it first. */
__attribute__((constructor)) static void look_up_all(void)
{
    for (unsigned index = 0; index < sizeof names / sizeof *names; index++)
        next_of(index, NULL);
}

/* Keeps all registers that can have arguments, of any number and kind. */
__asm__(".text\n"
        "forward:\n"
        "push %rax\npush %rdi\npush %rsi\npush %rdx\npush %rcx\npush %r8\npush %r9\npush %r10\n"
        "sub $128, %rsp\n"
        "movups %xmm0, (%rsp)\nmovups %xmm1, 16(%rsp)\nmovups %xmm2, 32(%rsp)\nmovups %xmm3, 48(%rsp)\n"
        "movups %xmm4, 64(%rsp)\nmovups %xmm5, 80(%rsp)\nmovups %xmm6, 96(%rsp)\nmovups %xmm7, 112(%rsp)\n"
        "mov 192(%rsp), %rdi\n"
        "mov 200(%rsp), %rsi\n"
        "call next_of\n"
        "mov %rax, %r11\n"
        "movups (%rsp), %xmm0\nmovups 16(%rsp), %xmm1\nmovups 32(%rsp), %xmm2\nmovups 48(%rsp), %xmm3\n"
        "movups 64(%rsp), %xmm4\nmovups 80(%rsp), %xmm5\nmovups 96(%rsp), %xmm6\nmovups 112(%rsp), %xmm7\n"
        "add $128, %rsp\n"
        "pop %r10\npop %r9\npop %r8\npop %rcx\npop %rdx\npop %rsi\npop %rdi\npop %rax\n"
        "add $8, %rsp\n"
        "jmp *%r11\n"
        ".set index, 0\n");

#define X(name)                                                         \
    __asm__(".globl " #name "\n"                                        \
            ".type " #name ", @function\n" #name ":\n"                  \
            "push $index\n"                                             \
            "jmp forward\n"                                             \
            ".set index, index + 1\n");
FUNCTIONS
