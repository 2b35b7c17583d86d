// cuBLAS, cuFFT and NVRTC: what must answer with more than "done". PyTorch sizes cuBLAS's workspaces itself.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cufft.h>
#include <nvrtc.h>

#include <cstring>

#include "emulated.h"

using namespace emulated;

namespace {

template <class T>
cublasStatus_t create(T* out) {
  *out = handle<T>();
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

EMULATED cublasStatus_t cublasCreate_v2(cublasHandle_t* h) { return create(h); }
EMULATED cublasStatus_t cublasGetMathMode(cublasHandle_t, cublasMath_t* mode) {
  *mode = CUBLAS_DEFAULT_MATH;
  return CUBLAS_STATUS_SUCCESS;
}
EMULATED cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t, cublasPointerMode_t* mode) {
  *mode = CUBLAS_POINTER_MODE_HOST;
  return CUBLAS_STATUS_SUCCESS;
}
EMULATED cublasStatus_t cublasLtCreate(cublasLtHandle_t* h) { return create(h); }
EMULATED cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t, cudaDataType_t) {
  return create(d);
}
EMULATED cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* d, cudaDataType, uint64_t, uint64_t,
                                                   int64_t) {
  return create(d);
}
EMULATED cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* d) { return create(d); }

// Without a result PyTorch would take another path; the workspace is its own buffer, whatever the result says.
EMULATED cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                                       cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,
                                                       cublasLtMatmulHeuristicResult_t* result, int* count) {
  std::memset(result, 0, sizeof *result);
  result->state = CUBLAS_STATUS_SUCCESS;
  result->wavesCount = 1.f;
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

EMULATED cufftResult cufftCreate(cufftHandle* h) {
  static std::atomic<int> next{1};
  *h = next++;
  return CUFFT_SUCCESS;
}

// NVRTC compiles nothing: "programs" are eight zero bytes (torch compiles erfinv_ and the like at run time).
EMULATED nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = versions().cuda / 1000;
  *minor = versions().cuda % 1000 / 10;
  return NVRTC_SUCCESS;
}
EMULATED nvrtcResult nvrtcCreateProgram(nvrtcProgram* p, const char*, const char*, int, const char* const*,
                                        const char* const*) {
  *p = handle<nvrtcProgram>();
  return NVRTC_SUCCESS;
}
EMULATED nvrtcResult nvrtcCompileProgram(nvrtcProgram, int, const char* const*) { return NVRTC_SUCCESS; }
EMULATED nvrtcResult nvrtcDestroyProgram(nvrtcProgram*) { return NVRTC_SUCCESS; }
EMULATED nvrtcResult nvrtcAddNameExpression(nvrtcProgram, const char*) { return NVRTC_SUCCESS; }
EMULATED nvrtcResult nvrtcGetLoweredName(nvrtcProgram, const char*, const char** name) {
  *name = "kernel";
  return NVRTC_SUCCESS;
}

namespace {

nvrtcResult size_of_code(std::size_t* n) {
  *n = 8;
  return NVRTC_SUCCESS;
}
nvrtcResult code(char* out) {
  std::memset(out, 0, 8);
  return NVRTC_SUCCESS;
}

}  // namespace

EMULATED nvrtcResult nvrtcGetCUBINSize(nvrtcProgram, std::size_t* n) { return size_of_code(n); }
EMULATED nvrtcResult nvrtcGetCUBIN(nvrtcProgram, char* out) { return code(out); }
EMULATED nvrtcResult nvrtcGetPTXSize(nvrtcProgram, std::size_t* n) { return size_of_code(n); }
EMULATED nvrtcResult nvrtcGetPTX(nvrtcProgram, char* out) { return code(out); }
EMULATED nvrtcResult nvrtcGetLTOIRSize(nvrtcProgram, std::size_t* n) { return size_of_code(n); }
EMULATED nvrtcResult nvrtcGetLTOIR(nvrtcProgram, char* out) { return code(out); }
EMULATED nvrtcResult nvrtcGetOptiXIRSize(nvrtcProgram, std::size_t* n) { return size_of_code(n); }
EMULATED nvrtcResult nvrtcGetOptiXIR(nvrtcProgram, char* out) { return code(out); }
EMULATED nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram, std::size_t* n) {
  *n = 1;
  return NVRTC_SUCCESS;
}
EMULATED nvrtcResult nvrtcGetProgramLog(nvrtcProgram, char* out) {
  *out = 0;
  return NVRTC_SUCCESS;
}
EMULATED nvrtcResult nvrtcGetNumSupportedArchs(int* n) {
  *n = 1;
  return NVRTC_SUCCESS;
}
EMULATED nvrtcResult nvrtcGetSupportedArchs(int* archs) {
  *archs = card().major * 10 + card().minor;
  return NVRTC_SUCCESS;
}
EMULATED const char* nvrtcGetErrorString(nvrtcResult) { return "error of the emulated GPU"; }
