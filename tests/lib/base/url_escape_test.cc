#include "lib/base/url_escape.h"

#include <gtest/gtest.h>

namespace gantry {
namespace {

TEST(UrlEscape, EscapesWhatWouldMeanSomethingInAUrl) {
  EXPECT_EQ(UrlEscape("a.b_c-d:e+f=g/h i"), "a.b_c-d%3Ae%2Bf%3Dg%2Fh%20i");
}

}  // namespace
}  // namespace gantry
