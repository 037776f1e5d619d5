// SPDX-License-Identifier: Apache-2.0
//
// The tables. Names and absent keys' values are those of the public configurations and of the configuration
// classes that read them; what is computed instead is in the runtime's instruction set.
#include "dsl/hf/architecture.h"

#include <fmt/format.h>

namespace paratope::hf {
namespace {

using enum Treat;

constexpr const char *no_bias = "projections have no bias";
constexpr const char *no_tie = "the head has weights of its own, `head`";
constexpr const char *no_scaling = "positions are rotated without scaling";
constexpr const char *no_draft = "draft layers are no part of a step";

constexpr KeyRule rules_of_all[] = {
    {"model_type", derive},
    {"vocab_size", copy, "vocab"},
    {"hidden_size", copy, "hidden"},
    {"num_hidden_layers", copy, "layers"},
    {"num_attention_heads", copy, "attention.heads"},
    {"hidden_act", require, "", "\"silu\"", "experts and dense layers compute silu(gate) times up"},
    {"tie_word_embeddings", leave_out, "", "false", no_tie},
    {"rope_scaling", leave_out, "", "null", no_scaling},
    {"rope_parameters.rope_type", leave_out, "", "\"default\"", no_scaling},
    {"rope_parameters.type", leave_out, "", "\"default\"", no_scaling},
    {"rope_parameters.rope_theta", derive},
    {"rope_parameters.factor", ignore, "", "", "part of rope_type"},
    {"rope_parameters.beta_fast", ignore, "", "", "part of rope_type"},
    {"rope_parameters.beta_slow", ignore, "", "", "part of rope_type"},
    {"rope_parameters.mscale", ignore, "", "", "part of rope_type"},
    {"rope_parameters.mscale_all_dim", ignore, "", "", "part of rope_type"},
    {"rope_parameters.truncate", ignore, "", "", "part of rope_type"},
    {"rope_parameters.attention_factor", ignore, "", "", "part of rope_type"},
    {"rope_parameters.low_freq_factor", ignore, "", "", "part of rope_type"},
    {"rope_parameters.high_freq_factor", ignore, "", "", "part of rope_type"},
    {"rope_parameters.original_max_position_embeddings", ignore, "", "", "part of rope_type"},
    {"rope_parameters.partial_rotary_factor", require, "", "1", "every dim of a rotary part turns"},
    {"architectures", ignore, "", "", "names a class"},
    {"auto_map", ignore, "", "", "names classes"},
    {"_name_or_path", ignore, "", "", "where it was loaded from"},
    {"transformers_version", ignore, "", "", "what wrote the file"},
    {"torch_dtype", ignore, "", "", "how weights are kept is said by the topology"},
    {"dtype", ignore, "", "", "how weights are kept is said by the topology"},
    {"expert_dtype", ignore, "", "", "how weights are kept is said by the topology"},
    {"quantization_config", ignore, "", "", "how weights are kept is said by the topology"},
    {"compression_config", ignore, "", "", "how weights are kept is said by the topology"},
    {"max_position_embeddings", ignore, "", "", "a limit of training"},
    {"initializer_range", ignore, "", "", "training"},
    {"attention_dropout", ignore, "", "", "training"},
    {"router_aux_loss_coef", ignore, "", "", "training"},
    {"router_jitter_noise", ignore, "", "", "training"},
    {"aux_loss_alpha", ignore, "", "", "training"},
    {"seq_aux", ignore, "", "", "training"},
    {"output_router_logits", ignore, "", "", "what a call returns"},
    {"output_attentions", ignore, "", "", "what a call returns"},
    {"output_hidden_states", ignore, "", "", "what a call returns"},
    {"return_dict", ignore, "", "", "what a call returns"},
    {"use_cache", ignore, "", "", "a step always has a cache"},
    {"pretraining_tp", ignore, "", "", "the order of a sum"},
    {"ep_size", ignore, "", "", "the topology says it"},
    {"bos_token_id", ignore, "", "", "text"},
    {"eos_token_id", ignore, "", "", "text"},
    {"pad_token_id", ignore, "", "", "text"},
    {"num_nextn_predict_layers", ignore, "", "", no_draft},
};

Assigned made(const char *to, const char *key, int64_t integer, const SourceRange &where) {
  Assigned assigned{to, key, {}};
  assigned.value.kind = JsonValue::Kind::integer;
  assigned.value.integer = integer;
  assigned.value.number = static_cast<double>(integer);
  assigned.value.where = where;
  return assigned;
}

void assign(const char *to, const char *key, const JsonValue *value, std::vector<Assigned> &assigned) {
  if (value)
    assigned.push_back({to, key, *value});
}

// `rope_theta`, which later files have in `rope_parameters`.
void derive_theta(const Config &config, const char *otherwise, std::vector<Assigned> &assigned) {
  const JsonValue *theta = config.find("rope_theta");
  const char *key = "rope_theta";
  if (!theta)
    if (const JsonValue *parameters = config.find("rope_parameters")) {
      theta = parameters->find("rope_theta");
      key = "rope_parameters.rope_theta";
    }
  if (theta) {
    assigned.push_back({"attention.rope_theta", key, *theta});
    return;
  }
  Diagnostics none;
  assigned.push_back({"attention.rope_theta", key, *parse_json(otherwise, "", none)});
}

// Grouped-query attention: a head is hidden / heads wide unless it is said, and turns as a whole.
void derive_gqa(const Config &config, const char *theta, std::vector<Assigned> &assigned) {
  derive_theta(config, theta, assigned);
  const int64_t heads = config.integer("num_attention_heads", 0), hidden = config.integer("hidden_size", 0);
  const JsonValue *given = config.find("head_dim");
  const JsonValue *from = given ? given : config.find("hidden_size");
  if (!from || heads < 1 || (!given && hidden < 1))
    return; // reported by their rows
  if (!given && hidden % heads != 0) {
    config.diagnostics.error(
        "inconsistent-model", from->where,
        fmt::format(
            "without {}head_dim a head is hidden_size / num_attention_heads wide: {} is not divisible by {}",
            config.prefix, hidden, heads));
    return;
  }
  const int64_t dim = given ? config.integer("head_dim", 0) : hidden / heads;
  const char *key = given ? "head_dim" : "hidden_size";
  if (given && given->kind != JsonValue::Kind::integer)
    return; // reported by its row
  assigned.push_back(made("attention.head_dim", key, dim, from->where));
  assigned.push_back(made("attention.rope_dim", key, dim, from->where));
  if (!config.find("num_key_value_heads"))
    assigned.push_back(made("attention.kv_heads", "num_attention_heads", heads, from->where));
}

// ---- deepseek_v3 --------------------------------------------------------------------------------------

constexpr KeyRule rules_deepseek_v3[] = {
    {"rms_norm_eps", copy, "rms_eps", "1e-6"},
    {"rope_theta", derive},
    {"attention_bias", leave_out, "", "false", no_bias},
    {"q_lora_rank", copy, "attention.q_lora", "0"},
    {"kv_lora_rank", copy, "attention.kv_lora"},
    {"qk_nope_head_dim", copy, "attention.nope_dim"},
    {"qk_rope_head_dim", copy, "attention.rope_dim"},
    {"v_head_dim", copy, "attention.v_dim"},
    {"num_key_value_heads", ignore, "", "", "all heads share one latent"},
    {"head_dim", ignore, "", "", "follows from the parts of a head"},
    {"qk_head_dim", ignore, "", "", "follows from the parts of a head"},
    {"rope_interleave", ignore, "", "", "the order of a head's dims, which its weights follow"},
    {"n_routed_experts", copy, "moe.routed"},
    {"num_experts_per_tok", copy, "moe.top_k"},
    {"n_shared_experts", copy, "moe.shared", "0"},
    {"moe_intermediate_size", copy, "moe.width"},
    {"intermediate_size", copy, "moe.dense_width"},
    {"first_k_dense_replace", copy, "moe.dense_layers", "0"},
    {"moe_layer_freq", require, "", "1", "every layer after the dense ones has experts"},
    {"n_group", copy, "moe.groups", "1"},
    {"topk_group", copy, "moe.top_groups", "1"},
    {"topk_method", require, "", "\"noaux_tc\"",
     "a bias joins the choice and not the weights, and groups are chosen by their two best"},
    {"scoring_func", copy, "moe.score", "\"sigmoid\""},
    {"norm_topk_prob", copy, "moe.normalise", "true"},
    {"routed_scaling_factor", copy, "moe.scaling", "1"},
};
constexpr Constant constants_deepseek_v3[] = {{"attention.kind", "\"mla\""}};
void derive_deepseek_v3(const Config &config, std::vector<Assigned> &assigned) {
  derive_theta(config, "10000", assigned);
}

// ---- deepseek_v4, deepseek_v41 ------------------------------------------------------------------------

constexpr KeyRule rules_deepseek_v4[] = {
    {"rms_norm_eps", copy, "rms_eps", "1e-6"},
    {"rope_theta", derive},
    {"compress_rope_theta", copy, "attention.compress_rope_theta", "160000"},
    {"rope_parameters.main", leave_out, "", "null", "write rope_theta and compress_rope_theta instead"},
    {"rope_parameters.compress", leave_out, "", "null", "write rope_theta and compress_rope_theta instead"},
    {"attention_bias", leave_out, "", "false", no_bias},
    {"mlp_bias", leave_out, "", "false", no_bias},
    {"num_key_value_heads", copy, "attention.kv_heads", "1"},
    {"head_dim", copy, "attention.head_dim"},
    {"q_lora_rank", copy, "attention.q_lora"},
    {"qk_rope_head_dim", copy, "attention.rope_dim"},
    {"o_groups", copy, "attention.o_groups"},
    {"o_lora_rank", copy, "attention.o_lora"},
    {"sliding_window", copy, "attention.window"},
    {"compress_ratios", derive},
    {"index_topk", leave_out, "", "0", "a query sees every compressed entry before it, not the best few"},
    {"index_n_heads", ignore, "", "", "part of index_topk"},
    {"index_head_dim", ignore, "", "", "part of index_topk"},
    {"n_routed_experts", copy, "moe.routed"},
    {"num_experts_per_tok", copy, "moe.top_k"},
    {"n_shared_experts", copy, "moe.shared", "1"},
    {"moe_intermediate_size", copy, "moe.width"},
    {"scoring_func", copy, "moe.score", "\"sqrtsoftplus\""},
    {"norm_topk_prob", copy, "moe.normalise", "true"},
    {"routed_scaling_factor", copy, "moe.scaling", "1.5"},
    {"swiglu_limit", copy, "moe.swiglu_limit", "10"},
    {"n_group", copy, "moe.groups", "1"},
    {"topk_group", copy, "moe.top_groups", "1"},
    {"topk_method", require, "", "\"noaux_tc\"", "a bias joins the choice and not the weights"},
    {"gate_temp", require, "", "1", "the gate's logits are not divided by a temperature"},
    {"num_hash_layers", leave_out, "", "0", "the gate chooses in every layer, no table of token ids does"},
    {"hc_mult", copy, "hyper_connections"},
    {"hc_sinkhorn_iters", require, "", "20", "20 Sinkhorn iterations are computed"},
    {"hc_eps", require, "", "1e-6", "hyper-connections have that epsilon"},
    {"dspark_block_size", ignore, "", "", no_draft},
    {"dspark_noise_token_id", ignore, "", "", no_draft},
    {"dspark_target_layer_ids", ignore, "", "", no_draft},
    {"dspark_markov_rank", ignore, "", "", no_draft},
    {"dspark_n_routed_experts", ignore, "", "", no_draft},
    {"dspark_num_experts_per_tok", ignore, "", "", no_draft},
    // Of V4.1:
    {"kv_source_layer_ids", leave_out, "", "[]", "every layer compresses keys of its own"},
    {"index_source_layer_ids", ignore, "", "", "part of index_topk"},
    {"candidate_source_layer_id", ignore, "", "", "part of index_topk"},
    {"candidate_topk_blocks", ignore, "", "", "part of index_topk"},
    {"candidate_block_size", ignore, "", "", "part of index_topk"},
    {"engram_layer_ids", derive},
    {"engram_vocab_size", derive},
    {"engram_max_ngram_size", derive},
    {"engram_n_heads", derive},
    {"engram_head_dim", derive},
    {"engram_num_embeddings", ignore, "", "", "follows from the primes above engram_vocab_size"},
    {"engram_pad_id", derive},
    {"engram_pad_token_id", derive},
    {"engram_compressed_vocab_size", derive},
};
constexpr Constant constants_deepseek_v4[] = {{"attention.kind", "\"latent\""}, {"attention.sink", "true"}};
constexpr const char *left_out_deepseek_v4[] = {"compressed entries are of separate blocks, without a "
                                                "learned position in the block (the model's ratio 4 overlaps "
                                                "blocks)"};

// One ratio a layer; the draft layers' follow, and are dropped.
void derive_ratios(const Config &config, std::vector<Assigned> &assigned) {
  const JsonValue *ratios = config.find("compress_ratios");
  if (!ratios)
    return; // required by its need in derive_deepseek_v4
  const int64_t layers = config.integer("num_hidden_layers", 0);
  Assigned own{"attention.compress_ratios", "compress_ratios", *ratios};
  const auto given = static_cast<int64_t>(ratios->items.size());
  const int64_t drafts = config.integer("num_nextn_predict_layers", 0);
  bool all_zero = true; // what follows a layer's own is a draft's, which only sees its window
  for (int64_t i = layers; i < given; ++i)
    all_zero &= ratios->items[static_cast<size_t>(i)].kind == JsonValue::Kind::integer &&
                ratios->items[static_cast<size_t>(i)].integer == 0;
  if (layers >= 1 && given > layers && (all_zero || given - layers == drafts))
    own.value.items.resize(static_cast<size_t>(layers));
  assigned.push_back(std::move(own));
}

void derive_deepseek_v4(const Config &config, std::vector<Assigned> &assigned) {
  derive_theta(config, "10000", assigned);
  if (!config.find("compress_ratios"))
    config.diagnostics.error(
        "missing-key", config.keys.where,
        fmt::format("the model's layers are told apart by the key {}compress_ratios, which is "
                    "not there",
                    config.prefix));
  derive_ratios(config, assigned);
  const JsonValue *layers = config.find("engram_layer_ids");
  if (!layers || layers->items.empty())
    return;
  assign("engram.layers", "engram_layer_ids", layers, assigned);
  constexpr std::pair<const char *, const char *> keys[] = {{"engram.ngram", "engram_max_ngram_size"},
                                                            {"engram.heads", "engram_n_heads"},
                                                            {"engram.dim", "engram_head_dim"},
                                                            {"engram.vocab_per_head", "engram_vocab_size"}};
  for (const auto &[to, key] : keys) {
    if (!config.find(key))
      config.diagnostics.error("missing-key", layers->where,
                               fmt::format("engram layers need the key {}{}", config.prefix, key));
    assign(to, key, config.find(key), assigned);
  }
  config.diagnostics.add(
      Severity::warning, "left-out", layers->where,
      fmt::format(
          "{}engram_layer_ids: hash multipliers are no part of a configuration: they are drawn from the seed "
          "unless [model.engram] multipliers gives them; ids are hashed as they are, not through a table "
          "of the tokenizer, and before a sequence's start they are 0",
          config.prefix));
}

// ---- grouped-query models -----------------------------------------------------------------------------

constexpr KeyRule rules_qwen3_moe[] = {
    {"rms_norm_eps", copy, "rms_eps", "1e-6"},
    {"rope_theta", derive},
    {"attention_bias", leave_out, "", "false", no_bias},
    {"num_key_value_heads", copy, "attention.kv_heads", "null"},
    {"head_dim", derive},
    {"use_sliding_window", leave_out, "", "false", "every layer sees all keys"},
    {"sliding_window", ignore, "", "", "part of use_sliding_window"},
    {"max_window_layers", ignore, "", "", "part of use_sliding_window"},
    {"num_experts", copy, "moe.routed"},
    {"num_experts_per_tok", copy, "moe.top_k"},
    {"moe_intermediate_size", copy, "moe.width"},
    {"norm_topk_prob", copy, "moe.normalise", "false"},
    {"decoder_sparse_step", require, "", "1", "every layer has experts"},
    {"mlp_only_layers", require, "", "[]", "every layer has experts"},
    {"intermediate_size", ignore, "", "", "the width of dense layers, of which there are none"},
};
constexpr Constant constants_softmax_gqa[] = {{"attention.kind", "\"gqa\""}, {"moe.score", "\"softmax\""}};
constexpr const char *left_out_qwen3_moe[] = {
    "heads of queries and keys are not normalised (the model has an RMS norm "
    "for each of both)"};
void derive_qwen3_moe(const Config &config, std::vector<Assigned> &assigned) {
  derive_gqa(config, "10000", assigned);
}

constexpr KeyRule rules_mixtral[] = {
    {"rms_norm_eps", copy, "rms_eps", "1e-5"},
    {"rope_theta", derive},
    {"num_key_value_heads", copy, "attention.kv_heads", "null"},
    {"head_dim", derive},
    {"sliding_window", copy, "attention.window", "null"},
    {"num_local_experts", copy, "moe.routed"},
    {"num_experts_per_tok", copy, "moe.top_k"},
    {"intermediate_size", copy, "moe.width"},
};
constexpr Constant constants_mixtral[] = {
    {"attention.kind", "\"gqa\""}, {"moe.score", "\"softmax\""}, {"moe.normalise", "true"}};
void derive_mixtral(const Config &config, std::vector<Assigned> &assigned) {
  derive_gqa(config, "1000000", assigned);
}

constexpr KeyRule rules_gpt_oss[] = {
    {"rms_norm_eps", copy, "rms_eps", "1e-5"},
    {"rope_theta", derive},
    {"attention_bias", leave_out, "", "false", no_bias},
    {"num_key_value_heads", copy, "attention.kv_heads", "null"},
    {"head_dim", derive},
    {"sliding_window", derive},
    {"layer_types", derive},
    {"num_local_experts", copy, "moe.routed"},
    {"num_experts_per_tok", copy, "moe.top_k"},
    {"experts_per_token", ignore, "", "", "num_experts_per_tok again"},
    {"intermediate_size", copy, "moe.width"},
    {"swiglu_limit", copy, "moe.swiglu_limit", "7"},
    {"swiglu_alpha", ignore, "", "", "part of the experts' activation, which is left out as a whole"},
    {"initial_context_length", ignore, "", "", "part of rope_scaling"},
};
constexpr Constant constants_gpt_oss[] = {{"attention.kind", "\"gqa\""},
                                          {"attention.sink", "true"},
                                          {"moe.score", "\"softmax\""},
                                          {"moe.normalise", "true"}};
constexpr const char *left_out_gpt_oss[] = {
    "experts compute silu(gate)·up without biases (the model: gate·σ(1.702·gate)·(up + 1), with biases)",
    "the gate's logits have no bias"};

// The shortest list of windows that the layers take in turn: [128, 0] for sliding, full, sliding, …
void derive_windows(const Config &config, std::vector<Assigned> &assigned) {
  const JsonValue *window = config.find("sliding_window"), *types = config.find("layer_types");
  const int64_t layers = config.integer("num_hidden_layers", 0);
  std::vector<int64_t> windows;
  const JsonValue *from = types ? types : window;
  const int64_t size = config.integer("sliding_window", 0);
  if (window && window->kind != JsonValue::Kind::integer) {
    config.diagnostics.error(
        "wrong-type", window->where,
        fmt::format("{}sliding_window expects an integer, got {}", config.prefix, describe_value(*window)));
    return;
  }
  if (!types) {
    windows = {size, 0};
  } else {
    if (types->kind != JsonValue::Kind::array || static_cast<int64_t>(types->items.size()) != layers)
      config.diagnostics.error(
          "inconsistent-model", types->where,
          fmt::format("{}layer_types expects an array of {} entries, one a layer, got {}", config.prefix,
                      layers,
                      types->kind == JsonValue::Kind::array ? fmt::format("{}", types->items.size())
                                                            : describe_value(*types)));
    for (const JsonValue &type : types->items) {
      const bool sliding = type.text == "sliding_attention";
      if (!sliding && type.text != "full_attention")
        config.diagnostics.error(
            "unsupported", type.where,
            fmt::format("{}layer_types expects sliding_attention or full_attention, got {}", config.prefix,
                        describe_value(type)));
      windows.push_back(sliding ? size : 0);
    }
  }
  if (windows.empty() || !from)
    return;
  for (size_t period = 1; period <= windows.size(); ++period) {
    bool repeats = true;
    for (size_t i = period; i < windows.size(); ++i)
      repeats &= windows[i] == windows[i - period];
    if (repeats) {
      windows.resize(period);
      break;
    }
  }
  Assigned list{"attention.window", types ? "layer_types" : "sliding_window", {}};
  list.value.kind = JsonValue::Kind::array;
  list.value.where = from->where;
  for (int64_t each : windows)
    list.value.items.push_back(made("", "", each, from->where).value);
  assigned.push_back(std::move(list));
}

void derive_gpt_oss(const Config &config, std::vector<Assigned> &assigned) {
  derive_gqa(config, "150000", assigned);
  derive_windows(config, assigned);
}

constexpr KeyRule rules_llama[] = {
    {"rms_norm_eps", copy, "rms_eps", "1e-6"},
    {"rope_theta", derive},
    {"attention_bias", leave_out, "", "false", no_bias},
    {"mlp_bias", leave_out, "", "false", no_bias},
    {"num_key_value_heads", copy, "attention.kv_heads", "null"},
    {"head_dim", derive},
    {"intermediate_size", copy, "moe.dense_width"},
};
constexpr Constant constants_llama[] = {{"attention.kind", "\"gqa\""}};
void derive_llama(const Config &config, std::vector<Assigned> &assigned) {
  derive_gqa(config, "10000", assigned);
  assign("moe.dense_layers", "num_hidden_layers", config.find("num_hidden_layers"), assigned);
}

constexpr Architecture all[] = {
    {"deepseek_v3", "", rules_deepseek_v3, constants_deepseek_v3, {}, derive_deepseek_v3},
    {"deepseek_v4", "", rules_deepseek_v4, constants_deepseek_v4, left_out_deepseek_v4, derive_deepseek_v4},
    {"deepseek_v41", "text_config", rules_deepseek_v4, constants_deepseek_v4, {}, derive_deepseek_v4},
    {"deepseek_v41_text", "", rules_deepseek_v4, constants_deepseek_v4, {}, derive_deepseek_v4},
    {"gpt_oss", "", rules_gpt_oss, constants_gpt_oss, left_out_gpt_oss, derive_gpt_oss},
    {"llama", "", rules_llama, constants_llama, {}, derive_llama},
    {"mixtral", "", rules_mixtral, constants_mixtral, {}, derive_mixtral},
    {"qwen3_moe", "", rules_qwen3_moe, constants_softmax_gqa, left_out_qwen3_moe, derive_qwen3_moe},
};

} // namespace

const JsonValue *Config::find(std::string_view key) const {
  const JsonValue *value = keys.find(key);
  return value && value->kind != JsonValue::Kind::null ? value : nullptr;
}

int64_t Config::integer(std::string_view key, int64_t otherwise) const {
  const JsonValue *value = find(key);
  return value && value->kind == JsonValue::Kind::integer ? value->integer : otherwise;
}

std::span<const Architecture> architectures() { return all; }
std::span<const KeyRule> common_rules() { return rules_of_all; }

} // namespace paratope::hf
