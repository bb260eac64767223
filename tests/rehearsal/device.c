/* A CUDA driver and runtime without a GPU, for `make test-rehearsal`.

   Every call succeeds and does nothing; queries describe one device of compute capability 9.0.
   torch's fake tensors have no memory, so nothing is ever read from or written to the device.
   LD_PRELOAD puts these functions before those of the CUDA libraries. */
#define _GNU_SOURCE
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define MEMORY (80ul << 30)
#define HANDLE ((void *)64)
#define OK(name, ...) cudaError_t name(__VA_ARGS__) { return cudaSuccess; }
#define FINE(name, ...) CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }

static long next_handle(void) {
    static long last = 0;
    return last += 64;
}

/* Return a function of this file by its name. */
static void *own(const char *name) {
    static void *self;
    if (!self) {
        Dl_info info;
        dladdr((void *)cuInit, &info);
        self = dlopen(info.dli_fname, RTLD_NOW);
    }
    return dlsym(self, name);
}

/* The runtime: what torch calls when it initializes a device and runs the backward pass. */
OK(cudaSetDevice, int device)
OK(cudaDeviceSynchronize, void)
OK(cudaStreamSynchronize, cudaStream_t stream)
OK(cudaStreamQuery, cudaStream_t stream)
OK(cudaStreamWaitEvent, cudaStream_t stream, cudaEvent_t event, unsigned flags)
OK(cudaStreamDestroy, cudaStream_t stream)
OK(cudaEventRecord, cudaEvent_t event, cudaStream_t stream)
OK(cudaEventRecordWithFlags, cudaEvent_t event, cudaStream_t stream, unsigned flags)
OK(cudaEventQuery, cudaEvent_t event)
OK(cudaEventSynchronize, cudaEvent_t event)
OK(cudaEventDestroy, cudaEvent_t event)
OK(cudaGetLastError, void)
OK(cudaPeekAtLastError, void)
OK(cudaThreadExchangeStreamCaptureMode, enum cudaStreamCaptureMode *mode)

cudaError_t cudaGetDeviceCount(int *count) { *count = 1; return cudaSuccess; }
cudaError_t cudaGetDevice(int *device) { *device = 0; return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return cudaSuccess; }
cudaError_t cudaMemGetInfo(size_t *rest, size_t *all) { *rest = *all = MEMORY; return cudaSuccess; }
cudaError_t cudaDeviceCanAccessPeer(int *can, int one, int two) { *can = 0; return cudaSuccess; }
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) { *ms = 1; return cudaSuccess; }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority) {
    *stream = (cudaStream_t)next_handle();
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *number, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count) {
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    *event = (cudaEvent_t)next_handle();
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    return cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device) == CUDA_SUCCESS
               ? cudaSuccess
               : cudaErrorInvalidValue;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **found, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
    *found = own(name);
    if (status) *status = *found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return *found ? cudaSuccess : cudaErrorSymbolNotFound;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *found, const void *function) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *found, int device) {
    memset(found, 0, sizeof *found);
    strcpy(found->name, "rehearsal");
    found->major = 9;
    found->minor = 0;
    found->totalGlobalMem = MEMORY;
    found->multiProcessorCount = 132;
    found->warpSize = 32;
    found->maxThreadsPerBlock = 1024;
    found->maxThreadsPerMultiProcessor = 2048;
    found->maxBlocksPerMultiProcessor = 32;
    found->regsPerBlock = found->regsPerMultiprocessor = 65536;
    found->sharedMemPerBlock = 48 << 10;
    found->sharedMemPerBlockOptin = 227 << 10;
    found->sharedMemPerMultiprocessor = 228 << 10;
    found->l2CacheSize = 50 << 20;
    found->unifiedAddressing = found->concurrentKernels = 1;
    return cudaSuccess;
}

/* The driver: what torch and its libraries ask for at start. */
FINE(cuInit, unsigned flags)
FINE(cuCtxSetCurrent, CUcontext context)
/* What Triton calls when it asks for the properties of the device. */
FINE(cuCtxSetLimit, CUlimit limit, size_t value)
FINE(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value)
FINE(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache config)
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) { *value = 0; return CUDA_SUCCESS; }
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = 0;
    return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule *module, const void *image) { *module = HANDLE; return CUDA_SUCCESS; }
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    *function = HANDLE;
    return CUDA_SUCCESS;
}
CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    return CUDA_ERROR_INVALID_VALUE;
}
CUresult cuDriverGetVersion(int *version) { *version = CUDA_VERSION; return CUDA_SUCCESS; }
CUresult cuDeviceGetCount(int *count) { *count = 1; return CUDA_SUCCESS; }
CUresult cuDeviceGet(CUdevice *device, int number) { *device = 0; return CUDA_SUCCESS; }
CUresult cuCtxGetDevice(CUdevice *device) { *device = 0; return CUDA_SUCCESS; }
CUresult cuCtxGetCurrent(CUcontext *context) { *context = HANDLE; return CUDA_SUCCESS; }
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    *context = HANDLE;
    return CUDA_SUCCESS;
}
CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    *flags = 0;
    *active = 1;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 132; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = 227 << 10; break;
    default: *value = 1;
    }
    return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "rehearsal"; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult error, const char **text) { *text = "rehearsal"; return CUDA_SUCCESS; }
CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    *found = own(name);
    if (status) *status = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
