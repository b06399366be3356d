#include "lib/wire/view_body.h"

#include <algorithm>
#include <set>
#include <utility>

namespace gantry::wire {
namespace {

tl::unexpected<Error> RefuseView(std::string message, std::string field) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message), {}, std::move(field));
}

Status TakePairLocal(void* object, std::string&& text) {
  ASSIGN_OR_RETURN(static_cast<ViewPair*>(object)->local, ParseReference(text, "/local", 1));
  return {};
}

Status TakePairRemote(void* object, std::string&& text) {
  ASSIGN_OR_RETURN(static_cast<ViewPair*>(object)->remote, ParseReference(text, "/remote", 1));
  return {};
}

// A name, with `*` for any characters.
Status TakePattern(ViewGroup* group, std::string&& text) {
  std::string plain = text;
  std::replace(plain.begin(), plain.end(), '*', '.');
  RETURN_IF_ERROR(CheckName(plain, "this"));
  group->pairs.emplace_back().local.buffer = std::move(text);
  return {};
}

Status TakeAllByName(ViewGroup* group, const std::string& text) {
  if (text != "by_name") {
    return Fail(ErrorCode::kInvalidArgument, "pairs are \"by_name\" or a list");
  }
  group->pairs.emplace_back().local.buffer = "*";
  return {};
}

constexpr Field kPairFields[] = {
    ReadTextField("local", FieldKind::kText, kRequired, TakePairLocal),
    ReadTextField("remote", FieldKind::kText, kRequired, TakePairRemote),
};
constexpr Schema kPair{kPairFields, /*tuple=*/true};

constexpr Field kByteSliceFields[] = {
    NumberField<&ByteSlice::offset>("offset", kRequired),
    NumberField<&ByteSlice::length>("length", kRequired, 1),
};
constexpr Schema kByteSlice{kByteSliceFields};

constexpr Field kSliceFields[] = {
    ObjectField<&BlockSlice::local>("local", kOptional, kByteSlice),
    ObjectField<&BlockSlice::remote>("remote", kOptional, kByteSlice),
};
constexpr Schema kSlice{kSliceFields};

constexpr Field kRatioFields[] = {
    NumberField<&BlockRatio::local>("local", kOptional, 1, kBlockRatioMax),
    NumberField<&BlockRatio::remote>("remote", kOptional, 1, kBlockRatioMax),
};
constexpr Schema kRatio{kRatioFields};

// The body itself has the members of group 0, or of every group what the groups do not say.
struct Body {
  ViewRequest request;
  ViewGroup common;
};
Body& BodyAt(void* object) { return *static_cast<Body*>(object); }

// `group` finds the group that the field belongs to.
template <ViewGroup* (*group)(void*)>
constexpr Field PairsField() {
  Field field{"pairs", FieldKind::kTextsOrObjects, kOptional, 1, kTextBytesMax};
  field.text = [](void* object, std::string&& text) {
    return TakePattern(group(object), std::move(text));
  };
  field.word = [](void* object, std::string&& text) { return TakeAllByName(group(object), text); };
  field.enter = [](void* object) -> void* { return &group(object)->pairs.emplace_back(); };
  field.schema = &kPair;
  return NotEmpty(field);
}

template <ViewGroup* (*group)(void*)>
constexpr Field SlicesField() {
  Field field{"slice", FieldKind::kObjectOrObjects, kOptional};
  field.enter = [](void* object) -> void* { return &group(object)->slices.emplace_back(); };
  field.schema = &kSlice;
  return NotEmpty(field);
}

template <ViewGroup* (*group)(void*)>
constexpr Field RatioField() {
  Field field{"block_ratio", FieldKind::kObject, kOptional};
  field.enter = [](void* object) -> void* { return &group(object)->block_ratio.emplace(); };
  field.schema = &kRatio;
  return field;
}

template <std::string ViewRequest::*member>
constexpr Field RequestName(std::string_view name, Need need) {
  return ReadTextField(name, FieldKind::kText, need,
                       [](void* object, std::string&& value) -> Status {
                         RETURN_IF_ERROR(CheckName(value, "this"));
                         BodyAt(object).request.*member = std::move(value);
                         return {};
                       });
}

constexpr Field RemoteWorkloadField() {
  return ReadTextField("remote_workload", FieldKind::kText, kRequired,
                       [](void* object, std::string&& text) {
                         ViewRequest& request = BodyAt(object).request;
                         return TakeFencedWorkload(std::move(text), &request.remote_workload,
                                                   &request.remote_generation);
                       });
}

ViewGroup* GroupAt(void* object) { return static_cast<ViewGroup*>(object); }
ViewGroup* CommonAt(void* object) { return &BodyAt(object).common; }

constexpr Field kViewGroupFields[] = {
    NumberField<&ViewGroup::group>("group", kRequired),
    PairsField<GroupAt>(),
    SlicesField<GroupAt>(),
    RatioField<GroupAt>(),
};
constexpr Schema kViewGroup{kViewGroupFields};

constexpr Field GroupsField() {
  Field field{"groups", FieldKind::kObjects, kOptional};
  field.enter = [](void* object) -> void* { return &BodyAt(object).request.groups.emplace_back(); };
  field.schema = &kViewGroup;
  return NotEmpty(field);
}

constexpr Field kViewFields[] = {
    RequestName<&ViewRequest::id>("id", kOptional),
    RequestName<&ViewRequest::workload>("workload", kRequired),
    RequestName<&ViewRequest::peer>("peer", kOptional),
    RemoteWorkloadField(),
    PairsField<CommonAt>(),
    SlicesField<CommonAt>(),
    RatioField<CommonAt>(),
    GroupsField(),
};
constexpr Schema kView{kViewFields};

Status CheckGroup(const ViewGroup& group, const std::string& at) {
  if (group.pairs.empty()) {
    return Fail(ErrorCode::kMalformedBody, "the field is missing", {}, at + "/pairs");
  }
  if (group.slices.size() > kSlicesMax) {
    return RefuseView("there are more than " + std::to_string(kSlicesMax) + " slices",
                      at + "/slice");
  }
  if (group.block_ratio && group.block_ratio->local != 1 && group.block_ratio->remote != 1) {
    return RefuseView("one side of the ratio is 1", at + "/block_ratio");
  }
  return {};
}

Status FinishGroups(Body* body) {
  std::vector<ViewGroup>& groups = body->request.groups;
  body->request.has_groups = !groups.empty();
  if (groups.empty()) {
    groups.push_back(std::move(body->common));
    return CheckGroup(groups.front(), "");
  }
  if (!body->common.pairs.empty()) {
    return RefuseView("with groups, each names its own pairs", "/pairs");
  }
  if (groups.size() > kViewGroupsMax) {
    return RefuseView("there are more than " + std::to_string(kViewGroupsMax) + " groups",
                      "/groups");
  }
  std::set<uint32_t> numbers;
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string at = "/groups/" + std::to_string(i);
    if (groups[i].slices.empty()) groups[i].slices = body->common.slices;
    if (!groups[i].block_ratio) groups[i].block_ratio = body->common.block_ratio;
    RETURN_IF_ERROR(CheckGroup(groups[i], at));
    if (!numbers.insert(groups[i].group).second) {
      return RefuseView("the group is there twice", at + "/group");
    }
  }
  return {};
}

}  // namespace

Result<ViewRequest> ReadViewBody(BodyFormat format, std::string_view text) {
  Body body;
  RETURN_IF_ERROR(ReadBody(format, text, kView, &body));
  RETURN_IF_ERROR(FinishGroups(&body));
  return std::move(body.request);
}

}  // namespace gantry::wire
