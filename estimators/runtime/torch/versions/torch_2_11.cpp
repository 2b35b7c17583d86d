// PyTorch 2.11.0 with CUDA 13.0 and cuDNN 9.19, the version that the recordings were made with. Each figure has its
// place in PyTorch's source beside it; how the constants are used is said where they are declared (profile.h,
// rounding.h).
#include "estimators/runtime/torch/profile/profile.h"

namespace memplan {

namespace {

// c10/cuda/CUDACachingAllocator.cpp, c10/core/AllocatorConfig.h
AllocatorConstants allocator_2_11() {
  AllocatorConstants c;
  c.min_block = 512;              // kMinBlockSize
  c.small_limit = 1 << 20;        // kSmallSize
  c.small_segment = 2 << 20;      // kSmallBuffer
  c.own_segment_from = 10 << 20;  // kMinLargeAlloc
  c.own_segment_step = 2 << 20;   // kRoundLarge
  c.large_segment = 20 << 20;     // kLargeBuffer, unless large_segment_size_mb says otherwise
  return c;
}

// aten/src/ATen/autocast_mode.h
AutocastLists autocast_2_11() {
  AutocastLists lists;
  lists.lower = {"_convolution",
                 "convolution",
                 "conv1d",
                 "conv2d",
                 "conv3d",
                 "conv_tbc",
                 "conv_transpose1d",
                 "conv_transpose2d",
                 "conv_transpose3d",
                 "prelu",
                 "addmm",
                 "addmv",
                 "addr",
                 "matmul",
                 "einsum",
                 "mm",
                 "mv",
                 "linalg_vecdot",
                 "linear",
                 "addbmm",
                 "baddbmm",
                 "bmm",
                 "chain_matmul",
                 "linalg_multi_dot",
                 "_thnn_fused_lstm_cell",
                 "_thnn_fused_gru_cell",
                 "lstm_cell",
                 "gru_cell",
                 "rnn_tanh_cell",
                 "rnn_relu_cell",
                 "_scaled_dot_product_flash_attention",
                 "scaled_dot_product_attention"};
  lists.fp32 = {"acos",
                "asin",
                "cosh",
                "erfinv",
                "exp",
                "expm1",
                "log",
                "log10",
                "log2",
                "log1p",
                "reciprocal",
                "rsqrt",
                "sinh",
                "tan",
                "pow",
                "square",
                "softplus",
                "layer_norm",
                "native_layer_norm",
                "group_norm",
                "frobenius_norm",
                "nuclear_norm",
                "cosine_similarity",
                "poisson_nll_loss",
                "cosine_embedding_loss",
                "nll_loss",
                "nll_loss2d",
                "hinge_embedding_loss",
                "kl_div",
                "l1_loss",
                "smooth_l1_loss",
                "huber_loss",
                "mse_loss",
                "margin_ranking_loss",
                "multilabel_margin_loss",
                "soft_margin_loss",
                "triplet_margin_loss",
                "multi_margin_loss",
                "binary_cross_entropy_with_logits",
                "dist",
                "pdist",
                "cdist",
                "renorm",
                "logsumexp",
                "upsample_nearest1d",
                "_upsample_nearest_exact1d",
                "upsample_nearest2d",
                "_upsample_nearest_exact2d",
                "upsample_nearest3d",
                "_upsample_nearest_exact3d",
                "upsample_linear1d",
                "upsample_bilinear2d",
                "_upsample_bilinear2d_aa",
                "upsample_trilinear3d",
                "upsample_bicubic2d",
                "_upsample_bicubic2d_aa"};
  lists.fp32_dtype_argument = {
      "prod", "softmax", "log_softmax", "cumprod", "cumsum", "linalg_vector_norm", "linalg_matrix_norm", "sum"};
  lists.promote = {"addcdiv", "addcmul",      "atan2",     "bilinear",  "cross",      "dot",
                   "vdot",    "grid_sampler", "index_put", "tensordot", "scatter_add"};
  return lists;
}

}  // namespace

TorchProfile torch_2_11() {
  TorchProfile p;
  p.version = "2.11";
  p.compared = true;
  p.autocast = autocast_2_11();
  p.allocator = allocator_2_11();

  p.reads = {"CUBLAS_WORKSPACE_CONFIG",        "CUBLASLT_WORKSPACE_SIZE", "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
             "TORCH_CUDNN_SDPA_DEPRIORITIZED", "PYTORCH_ALLOC_CONF",      "PYTORCH_CUDA_ALLOC_CONF"};

  // aten/src/ATen/cuda/CublasHandlePool.cpp: 2 x 4096 KiB + 8 x 16 KiB, on Hopper 32 MiB.
  p.workspaces.cublas = Bytes((2 * 4096 + 8 * 16) << 10);
  p.workspaces.cublas_of_sm = {{90, Bytes::mib(32)}};
  p.workspaces.cublas_lt = Bytes::mib(1);
  p.workspaces.cublas_lt_shares_cublas = false;
  p.workspaces.cudnn_dropout_per_thread = Bytes(16);  // native/cudnn/RNN.cpp
  p.workspaces.cudnn = "9.19";

  // native/transformers/cuda/sdp_utils.cpp
  p.attention.cudnn_first = {90, 100};
  p.attention.fused_from_sm = 80;
  p.attention.flash_widest = 256;
  p.attention.cudnn_widest = 128;
  p.attention.cudnn_widest_of_sm = {{90, 256}};

  // torch/optim/*.py
  p.optimizer.fused = {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw};
  p.optimizer.one_by_one = {OptimizerKind::adafactor};

  // torch/nn/parallel/distributed.py, csrc/distributed/c10d/reducer.hpp
  p.ddp.default_bucket_mib = 25;
  p.ddp.first_bucket = 1 << 20;          // dist._DEFAULT_FIRST_BUCKET_BYTES
  p.ddp.broadcast_bucket = 250ll << 20;  // DistributedDataParallel.broadcast_bucket_size

  // aten/src/ATen/native/cuda/TensorShape.cu
  p.fsdp.copy_threads = 128;
  p.fsdp.copy_block = 2048;  // 16 bytes a thread
  return p;
}

}  // namespace memplan
