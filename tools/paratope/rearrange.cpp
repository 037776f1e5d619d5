// SPDX-License-Identifier: Apache-2.0
//
// `rearrange`: the pattern engine alone, on 0, 1, 2, … in a shape.
#include "dsl/rearrange/rearrange.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

#include "tools/paratope/numbers.h"
#include "tools/paratope/session.h"

namespace paratope {

namespace {

struct Arguments {
  std::string pattern, shape;
  std::vector<std::string> sizes;
  bool json = false;
};

constexpr int64_t most_values = int64_t{1} << 24;

int rearranged(const Arguments &arguments) {
  std::string message;
  std::optional<std::vector<int64_t>> shape = parse_numbers(arguments.shape, "--shape", message);
  if (!shape)
    return refuse_arguments(arguments.json, message);
  std::vector<SizedAxis> sizes;
  for (const std::string &setting : arguments.sizes) {
    size_t equals = setting.find('=');
    SizedAxis axis;
    if (equals == std::string::npos || !parse_number(std::string_view(setting).substr(equals + 1), axis.size))
      return refuse_arguments(arguments.json, fmt::format("got --set {}, expected AXIS=SIZE", setting));
    axis.name = setting.substr(0, equals);
    axis.origin = "--set";
    sizes.push_back(axis);
  }
  PatternErrors errors;
  std::optional<Pattern> pattern = parse_pattern(arguments.pattern, errors);
  std::optional<Rearrangement> result;
  if (pattern)
    result = rearrange(*pattern, *shape, sizes, errors);
  if (result && element_count(*result) > most_values)
    return refuse_arguments(arguments.json,
                            fmt::format("the shape has {} elements, more than the {} that are printed",
                                        element_count(*result), most_values));
  if (!result) {
    std::string text;
    for (const PatternError &error : errors)
      text +=
          (text.empty() ? "" : "\nerror: ") + to_string(error, std::vector<std::string>{arguments.pattern});
    return refuse_arguments(arguments.json, text + fmt::format("\n  shape [{}]", fmt::join(*shape, ", ")));
  }
  std::vector<int64_t> values = values_on_iota(*result);
  if (arguments.json)
    print(nlohmann::ordered_json{{"shape", result->out_shape}, {"values", values}});
  else
    print(fmt::format("shape [{}]\n{}\n", fmt::join(result->out_shape, ", "), fmt::join(values, " ")));
  return exit_good;
}

} // namespace

void register_rearrange(CLI::App &app, int &exit_code) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App *command =
      app.add_subcommand("rearrange", "the pattern engine alone, as einops' rearrange on 0, 1, 2, …");
  command->add_option("PATTERN", arguments->pattern, "\"(a b) -> b a\"")->required();
  command->add_option("--shape", arguments->shape, "2,3,4")->required();
  command->add_option("--set", arguments->sizes, "AXIS=SIZE")
      ->take_all()
      ->expected(1)
      ->type_name("AXIS=SIZE");
  command->add_flag("--json", arguments->json, "one JSON document on stdout and nothing else");
  command->footer("Example:\n  paratope rearrange \"(dp cp) -> cp dp\" --shape 8 --set cp=2");
  command->callback([arguments, &exit_code] { exit_code = rearranged(*arguments); });
}

} // namespace paratope
