// The functions of gantry.h for views, over WorkloadSession.
#include <cstring>

#include "client/c_api/c_api_border.h"

using namespace gantry;          // NOLINT: the functions below cannot be in a namespace
using namespace gantry::client;  // NOLINT

gantry_error* gantry_view_create(gantry_client* client, const gantry_view_spec* spec,
                                 gantry_view** view) {
  return EnterObject(client, [&]() -> Status {
    if (spec == nullptr || view == nullptr) {
      return Fail(ErrorCode::kInvalidArgument, "an argument is NULL", {},
                  spec == nullptr ? "spec" : "view");
    }
    auto handle = std::make_unique<gantry_view>();
    handle->session = client->session;
    ASSIGN_OR_RETURN(handle->record, client->session->transfers().MakeView(*spec));
    *view = handle.release();
    return {};
  });
}

const char* gantry_view_id(const gantry_view* view) { return view->record->id().c_str(); }

uint64_t gantry_view_pair_count(const gantry_view* view) {
  return view->record->answer().pair_count;
}

uint64_t gantry_view_bytes_per_block(const gantry_view* view) {
  return view->record->answer().bytes_per_block;
}

char* gantry_view_json(const gantry_view* view) {
  char* text = nullptr;
  gantry_error_destroy(EnterObject(view, [&]() -> Status {
    text = ::strdup(view->record->answer().json.c_str());
    return {};
  }));
  return text;
}

gantry_error* gantry_view_delete(gantry_view* view) {
  return EnterObject(
      view, [&]() -> Status { return view->session->transfers().DeleteView(*view->record); });
}

void gantry_view_destroy(gantry_view* view) {
  Destroy(view, [&]() -> Status { return view->session->transfers().Drop(*view->record); });
}
