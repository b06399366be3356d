// The routes that are served and the routes that are counted are the same.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "sidecar/api/routes.h"
#include "sidecar/metrics/metric_labels.h"

namespace gantry::metrics {
namespace {

TEST(HttpRouteMetrics, CountEveryRouteThatIsServedAndNoOther) {
  std::set<std::string> served, counted;
  for (const api::Route& route : api::Routes()) {
    served.insert(std::string(route.method) + " " + std::string(route.pattern));
  }
  for (const HttpEndpoint& endpoint : HttpEndpoints()) {
    counted.insert(std::string(endpoint.method) + " " + std::string(endpoint.route));
  }
  counted.erase("other other");
  EXPECT_EQ(served, counted);
}

}  // namespace
}  // namespace gantry::metrics
