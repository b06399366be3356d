// Reads the exposition format, just enough for the tests: series with their values, and types.
// Used by one thread at a time.
#pragma once

#include <map>
#include <set>
#include <sstream>
#include <string>

namespace gantry::metrics {

struct Exposition {
  std::map<std::string, double> series;      // "name{label=\"value\",...}" as it is written
  std::map<std::string, std::string> types;  // name of the metric -> "counter", ...
  std::map<std::string, std::set<std::string>> labels;

  explicit Exposition(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (line.rfind("# TYPE ", 0) == 0) {
        std::istringstream words(line.substr(7));
        std::string name;
        words >> name >> types[name];
      } else if (!line.empty() && line[0] != '#') {
        const size_t space = line.rfind(' ');
        series[line.substr(0, space)] = std::stod(line.substr(space + 1));
        AddLabels(line.substr(0, space));
      }
    }
  }

  double At(const std::string& name) const {
    const auto found = series.find(name);
    return found == series.end() ? -1 : found->second;
  }

 private:
  // Of "x_bucket{a="1",le="2"}": a belongs to the histogram x.
  void AddLabels(const std::string& written) {
    std::string name = written.substr(0, written.find('{'));
    for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
      const size_t cut = name.size() > suffix.size() ? name.size() - suffix.size() : 0;
      if (name.substr(cut) == suffix && types.count(name.substr(0, cut)) != 0) {
        name.resize(cut);
        break;
      }
    }
    std::set<std::string>& known = labels[name];
    for (size_t equals = written.find("=\""); equals != std::string::npos;
         equals = written.find("=\"", equals + 2)) {
      const size_t start = written.find_last_of("{,", equals) + 1;
      const std::string label = written.substr(start, equals - start);
      if (label != "le" && label != "quantile") known.insert(label);
    }
  }
};

}  // namespace gantry::metrics
