// A library to preload, whose malloc is not glibc's for those who look, and behaves as that does.
// It leaves out calloc: of a program that is no position-independent code, only a look at each
// library then tells that malloc is another one.
#include <cstddef>

extern "C" {

void* __libc_malloc(size_t bytes);
void __libc_free(void* block);

__attribute__((visibility("default"))) void* malloc(size_t bytes) { return __libc_malloc(bytes); }
__attribute__((visibility("default"))) void free(void* block) { __libc_free(block); }

}  // extern "C"
