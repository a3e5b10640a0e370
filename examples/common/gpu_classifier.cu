// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#include "examples/common/gpu_classifier.hpp"

#include <stdexcept>
#include <string>
#include <vector>

#include "examples/common/initial_weights.hpp"

namespace examples {

namespace {

constexpr int hidden = 32;
constexpr int most_cells = 1024;
constexpr int most_classes = 32;

void check(cudaError_t code, const char* what) {
  if (code != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(code));
}

/// Sizes of the model and where its parameters lie in one array of floats.
struct shape {
  int side;
  int cells;  // a side
  int inputs;
  int classes;
  __host__ __device__ int hidden_bias() const { return inputs * hidden; }
  __host__ __device__ int output_weights() const { return hidden_bias() + hidden; }
  __host__ __device__ int output_bias() const { return output_weights() + hidden * classes; }
  __host__ __device__ int parameters() const { return output_bias() + classes; }
};

struct totals {
  double loss;
  unsigned long long right;
};

/// One block an image: forward; with `gradients`, backward too.
__global__ void run_image(shape s, const float* p, float* gradients, const std::uint8_t* images,
                          const std::int64_t* labels, totals* sums) {
  __shared__ float input[most_cells];
  __shared__ float activation[hidden];
  __shared__ float probability[most_classes];
  __shared__ float mean;
  const std::uint8_t* image = images + static_cast<std::size_t>(blockIdx.x) * s.side * s.side * 3;
  for (int cell = threadIdx.x; cell < s.inputs; cell += blockDim.x) {
    float grey = 0;
    for (int y = 0; y < 4; ++y) {
      for (int x = 0; x < 4; ++x) {
        const std::uint8_t* q = image + ((cell / s.cells * 4 + y) * s.side + cell % s.cells * 4 + x) * 3;
        grey += static_cast<float>(q[0] + q[1] + q[2]);
      }
    }
    input[cell] = grey / (3.0f * 255 * 16);
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    float sum = 0;
    for (int k = 0; k < s.inputs; ++k) sum += input[k];
    mean = sum / static_cast<float>(s.inputs);
  }
  __syncthreads();
  for (int k = threadIdx.x; k < s.inputs; k += blockDim.x) input[k] = (input[k] - mean) * 4;
  __syncthreads();
  for (int h = threadIdx.x; h < hidden; h += blockDim.x) {
    float a = p[s.hidden_bias() + h];
    for (int k = 0; k < s.inputs; ++k) a += input[k] * p[k * hidden + h];
    activation[h] = a > 0 ? a : 0;
  }
  __syncthreads();
  for (int c = threadIdx.x; c < s.classes; c += blockDim.x) {
    float v = p[s.output_bias() + c];
    for (int h = 0; h < hidden; ++h) v += activation[h] * p[s.output_weights() + h * s.classes + c];
    probability[c] = v;
  }
  __syncthreads();
  const int label = static_cast<int>(labels[blockIdx.x]);
  if (threadIdx.x == 0) {
    float most = probability[0];
    int best = 0;
    for (int c = 1; c < s.classes; ++c) {
      if (probability[c] > most) {
        most = probability[c];
        best = c;
      }
    }
    float sum = 0;
    for (int c = 0; c < s.classes; ++c) sum += probability[c] = expf(probability[c] - most);
    for (int c = 0; c < s.classes; ++c) probability[c] /= sum;
    if (best == label) atomicAdd(&sums->right, 1ull);
    if (gradients != nullptr) atomicAdd(&sums->loss, -log(static_cast<double>(probability[label]) + 1e-9));
  }
  __syncthreads();
  if (gradients == nullptr) return;
  for (int h = threadIdx.x; h < hidden; h += blockDim.x) {
    float error = 0;
    for (int c = 0; c < s.classes; ++c) {
      const float e = probability[c] - (c == label ? 1.0f : 0.0f);
      error += e * p[s.output_weights() + h * s.classes + c];
      atomicAdd(&gradients[s.output_weights() + h * s.classes + c], e * activation[h]);
      if (h == 0) atomicAdd(&gradients[s.output_bias() + c], e);
    }
    if (activation[h] <= 0) continue;
    for (int k = 0; k < s.inputs; ++k) atomicAdd(&gradients[k * hidden + h], error * input[k]);
    atomicAdd(&gradients[s.hidden_bias() + h], error);
  }
}

__global__ void step(int count, float rate, float* values, float* gradients, float* momentum) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  momentum[i] = 0.9f * momentum[i] - rate * gradients[i];
  values[i] += momentum[i];
  gradients[i] = 0;
}

}  // namespace

struct gpu_classifier::state {
  shape s{};
  cudaStream_t stream = nullptr;
  float* memory = nullptr;  // values, gradients, momentum
  totals* sums = nullptr;

  float* values() const { return memory; }
  float* gradients() const { return memory + s.parameters(); }
  float* momentum() const { return memory + 2 * s.parameters(); }

  ~state() {
    cudaFree(memory);
    cudaFree(sums);
  }
  totals take() {
    totals seen{};
    check(cudaMemcpyAsync(&seen, sums, sizeof seen, cudaMemcpyDeviceToHost, stream), "cudaMemcpyAsync");
    check(cudaMemsetAsync(sums, 0, sizeof seen, stream), "cudaMemsetAsync");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return seen;
  }
};

gpu_classifier::gpu_classifier(int side, int classes, cudaStream_t stream) : state_(new state) {
  try {
    shape& s = state_->s;
    s.side = side;
    s.cells = side / 4;
    s.inputs = s.cells * s.cells;
    s.classes = classes;
    if (s.inputs > most_cells || classes > most_classes) throw std::runtime_error("the model is too large");
    state_->stream = stream;
    std::vector<float> all(3 * static_cast<std::size_t>(s.parameters()));
    const std::vector<double> first = initial_weights(s.inputs, hidden, 0.05);
    const std::vector<double> second = initial_weights(hidden, classes, 0.2);
    for (std::size_t i = 0; i < first.size(); ++i) all[i] = static_cast<float>(first[i]);
    for (std::size_t i = 0; i < second.size(); ++i) {
      all[static_cast<std::size_t>(s.output_weights()) + i] = static_cast<float>(second[i]);
    }
    check(cudaMalloc(&state_->memory, all.size() * sizeof(float)), "cudaMalloc");
    check(cudaMalloc(&state_->sums, sizeof(totals)), "cudaMalloc");
    check(cudaMemcpy(state_->memory, all.data(), all.size() * sizeof(float), cudaMemcpyHostToDevice), "cudaMemcpy");
    check(cudaMemset(state_->sums, 0, sizeof(totals)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // `stream` may not wait for the default stream
  } catch (...) {
    delete state_;
    throw;
  }
}

gpu_classifier::~gpu_classifier() {
  cudaStreamSynchronize(state_->stream);
  delete state_;
}

void gpu_classifier::train_step(const std::uint8_t* images, const std::int64_t* labels, std::size_t n) {
  if (n == 0) return;
  const state& m = *state_;
  run_image<<<static_cast<unsigned>(n), 64, 0, m.stream>>>(m.s, m.values(), m.gradients(), images, labels, m.sums);
  check(cudaGetLastError(), "run_image");
  const int count = m.s.parameters();
  step<<<static_cast<unsigned>((count + 255) / 256), 256, 0, m.stream>>>(count, 0.03f / static_cast<float>(n),
                                                                         m.values(), m.gradients(), m.momentum());
  check(cudaGetLastError(), "step");
}

void gpu_classifier::count_right(const std::uint8_t* images, const std::int64_t* labels, std::size_t n) {
  if (n == 0) return;
  const state& m = *state_;
  run_image<<<static_cast<unsigned>(n), 64, 0, m.stream>>>(m.s, m.values(), nullptr, images, labels, m.sums);
  check(cudaGetLastError(), "run_image");
}

double gpu_classifier::take_loss() { return state_->take().loss; }
std::size_t gpu_classifier::take_right() { return static_cast<std::size_t>(state_->take().right); }

}  // namespace examples
