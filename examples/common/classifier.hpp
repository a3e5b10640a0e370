// SPDX-FileCopyrightText: The millrace authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "examples/common/initial_weights.hpp"

namespace examples {

/// A small image classifier in plain C++: grey cells of 4x4 pixels, one hidden layer, softmax, stochastic gradient
/// descent with momentum. Takes the place of a real program's training step.
class classifier {
 public:
  classifier(int side, int classes)
      : side_(side),
        cells_(side / 4),
        inputs_(cells_ * cells_),
        hidden_weights_(inputs_, hidden, 0.05),
        output_weights_(hidden, classes, 0.2) {}

  /// One step over `n` RGB images of side x side pixels; gives the sum of their losses.
  double train_step(const std::uint8_t* images, const std::int64_t* labels, std::size_t n) {
    double loss = 0;
    for (std::size_t i = 0; i < n; ++i) {
      forward(images + i * image_bytes());
      const auto label = static_cast<std::size_t>(labels[i]);
      loss -= std::log(probability_[label] + 1e-9);
      std::vector<double> hidden_error(hidden, 0);
      for (std::size_t c = 0; c < probability_.size(); ++c) {
        const double error = probability_[c] - (c == label ? 1 : 0);
        for (std::size_t h = 0; h < hidden; ++h) {
          hidden_error[h] += error * output_weights_.at(h, c);
          output_weights_.gradient(h, c) += error * activation_[h];
        }
        output_weights_.bias_gradient[c] += error;
      }
      for (std::size_t h = 0; h < hidden; ++h) {
        if (activation_[h] <= 0) continue;
        for (std::size_t k = 0; k < input_.size(); ++k) hidden_weights_.gradient(k, h) += hidden_error[h] * input_[k];
        hidden_weights_.bias_gradient[h] += hidden_error[h];
      }
    }
    hidden_weights_.step(0.03 / static_cast<double>(n));
    output_weights_.step(0.03 / static_cast<double>(n));
    return loss;
  }

  /// How many of `n` images are classified correctly.
  std::size_t count_right(const std::uint8_t* images, const std::int64_t* labels, std::size_t n) {
    std::size_t right = 0;
    for (std::size_t i = 0; i < n; ++i) {
      forward(images + i * image_bytes());
      std::size_t best = 0;
      for (std::size_t c = 1; c < probability_.size(); ++c) {
        if (probability_[c] > probability_[best]) best = c;
      }
      right += static_cast<std::int64_t>(best) == labels[i] ? 1 : 0;
    }
    return right;
  }

 private:
  static constexpr std::size_t hidden = 32;

  struct layer {
    layer(int inputs, int outputs, double scale)
        : bias(static_cast<std::size_t>(outputs)),
          bias_gradient(bias.size()),
          outputs_(bias.size()),
          weights_(initial_weights(inputs, outputs, scale)),
          gradients_(weights_.size()),
          momentum_(weights_.size()),
          bias_momentum_(bias.size()) {}
    double at(std::size_t i, std::size_t o) const { return weights_[i * outputs_ + o]; }
    double& gradient(std::size_t i, std::size_t o) { return gradients_[i * outputs_ + o]; }
    void step(double rate) {
      move(weights_, gradients_, momentum_, rate);
      move(bias, bias_gradient, bias_momentum_, rate);
    }
    std::vector<double> bias;
    std::vector<double> bias_gradient;

   private:
    static void move(std::vector<double>& values, std::vector<double>& gradients, std::vector<double>& momentum,
                     double rate) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        momentum[i] = 0.9 * momentum[i] - rate * gradients[i];
        values[i] += momentum[i];
        gradients[i] = 0;
      }
    }
    std::size_t outputs_;
    std::vector<double> weights_, gradients_, momentum_, bias_momentum_;
  };

  std::size_t image_bytes() const { return static_cast<std::size_t>(side_) * static_cast<std::size_t>(side_) * 3; }

  void forward(const std::uint8_t* image) {
    input_.assign(static_cast<std::size_t>(inputs_), 0);
    double mean = 0;
    for (int y = 0; y < side_; ++y) {
      for (int x = 0; x < side_; ++x) {
        const std::uint8_t* p =
            image + (static_cast<std::size_t>(y) * static_cast<std::size_t>(side_) + static_cast<std::size_t>(x)) * 3;
        const double grey = (p[0] + p[1] + p[2]) / (3.0 * 255 * 16);
        input_[static_cast<std::size_t>((y / 4) * cells_ + x / 4)] += grey;
        mean += grey;
      }
    }
    mean /= inputs_;
    for (double& v : input_) v = (v - mean) * 4;
    activation_ = hidden_weights_.bias;
    for (std::size_t k = 0; k < input_.size(); ++k) {
      for (std::size_t h = 0; h < hidden; ++h) activation_[h] += input_[k] * hidden_weights_.at(k, h);
    }
    for (double& a : activation_) a = a > 0 ? a : 0;
    probability_ = output_weights_.bias;
    for (std::size_t h = 0; h < hidden; ++h) {
      for (std::size_t c = 0; c < probability_.size(); ++c)
        probability_[c] += activation_[h] * output_weights_.at(h, c);
    }
    double most = probability_[0];
    for (double p : probability_) most = p > most ? p : most;
    double sum = 0;
    for (double& p : probability_) sum += p = std::exp(p - most);
    for (double& p : probability_) p /= sum;
  }

  int side_;
  int cells_;
  int inputs_;
  layer hidden_weights_;
  layer output_weights_;
  std::vector<double> input_, activation_, probability_;
};

}  // namespace examples
