// Included before everything (CMakeLists.txt). PyTorch's wheels ask for glibc 2.28, so the library must not ask for
// more: glibc 2.34 moved these two functions and gave them a new version, and keeps the old one.
#if defined(__x86_64__) && defined(__linux__)
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
__asm__(".symver dladdr, dladdr@GLIBC_2.2.5");
#endif
