// Compiles a HIP source, as lib/gpu/hip/hip_compiler.cc does, with the HIP runtime of the file
// system that it runs in; says how many bytes of code came out. No GPU is needed when the
// architecture is named. One thread.
//   hiprtc_probe SOURCE OPTION...
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

namespace {

template <typename Function>
void Bind(void* library, const char* name, Function** function) {
  *function = reinterpret_cast<Function*>(dlsym(library, name));
  if (*function == nullptr) std::printf("no %s\n", name);
}

}  // namespace

int main(int argc, char** argv) {
  void* const library = dlopen("libamdhip64.so.5", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::printf("%s\n", dlerror()), 1;
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*compile)(void*, int, const char* const*);
  int (*code_size)(void*, size_t*);
  Bind(library, "hiprtcCreateProgram", &create);
  Bind(library, "hiprtcCompileProgram", &compile);
  Bind(library, "hiprtcGetCodeSize", &code_size);
  std::ifstream file(argv[1]);
  const std::string source((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
  void* program = nullptr;
  int result = create(&program, source.c_str(), "copy_kernel.hip", 0, nullptr, nullptr);
  if (result == 0) result = compile(program, argc - 2, argv + 2);
  size_t bytes = 0;
  if (result == 0) result = code_size(program, &bytes);
  std::printf("result %d, %zu bytes\n", result, bytes);
  return result == 0 && bytes > 0 ? 0 : 1;
}
