// Lock annotations that clang checks with -Wthread-safety; other compilers ignore them.
// mutex.h has the annotated mutex that goes with them.
#pragma once

#if defined(__clang__)
#define GANTRY_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define GANTRY_THREAD_ANNOTATION(x)
#endif

// Abseil's legacy macros of the same names and meaning may have come first.
#undef GUARDED_BY
#undef NO_THREAD_SAFETY_ANALYSIS
#undef TRY_ACQUIRE

#define GUARDED_BY(x) GANTRY_THREAD_ANNOTATION(guarded_by(x))
#define REQUIRES(...) GANTRY_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) GANTRY_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
#define CAPABILITY(x) GANTRY_THREAD_ANNOTATION(capability(x))
#define SCOPED_CAPABILITY GANTRY_THREAD_ANNOTATION(scoped_lockable)
#define ACQUIRE(...) GANTRY_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define RELEASE(...) GANTRY_THREAD_ANNOTATION(release_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) GANTRY_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS GANTRY_THREAD_ANNOTATION(no_thread_safety_analysis)
