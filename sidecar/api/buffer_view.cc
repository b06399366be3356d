#include "sidecar/api/buffer_view.h"

#include "lib/base/random_id.h"
#include "lib/wire/registration_body.h"

namespace gantry::api {

void WritePaths(const std::vector<wire::PathReport>& paths, wire::BodyWriter* writer) {
  writer->Key("paths").BeginList();
  for (const wire::PathReport& report : paths) {
    writer->BeginObject()
        .Field("path", NameOf(report.path))
        .Field("available", report.available)
        .OptionalField("reason", report.reason)
        .EndObject();
  }
  writer->EndList();
}

namespace {

// What this sidecar says of its paths, but for what it could not do with this buffer.
std::vector<wire::PathReport> PathsOf(const registry::Buffer& buffer,
                                      std::vector<wire::PathReport> paths) {
  std::string why = buffer.WhyNotOnNics();
  if (why.empty()) return paths;
  for (wire::PathReport& report : paths) {
    if (report.path == wire::Path::kRdma && report.available) {
      report = {wire::Path::kRdma, false, why};
    }
  }
  return paths;
}

}  // namespace

void WriteBuffer(const registry::Buffer& buffer, const std::vector<wire::PathReport>& paths,
                 wire::BodyWriter* writer) {
  const registry::Buffer::Description& description = buffer.description();
  writer->BeginObject()
      .Field("id", description.id)
      .Field("name", description.name)
      .Field("workload", description.workload)
      .Field("generation", HexOf(description.generation))
      .Field("state", NameOf(buffer.state()))
      .Field("length", buffer.length());
  writer->Key("pieces").BeginList();
  for (const wire::Piece& piece : description.pieces.pieces()) {
    writer->BeginObject()
        .Field("allocation_id", description.allocation_ids[piece.allocation])
        .Field("offset", piece.offset)
        .Field("length", piece.length)
        .EndObject();
  }
  writer->EndList().Key("access").BeginList();
  if (description.access.remote_read) writer->Text(wire::kRemoteRead);
  if (description.access.remote_write) writer->Text(wire::kRemoteWrite);
  writer->EndList();
  if (description.layout) {
    writer->Key("layout")
        .BeginObject()
        .Field("block_bytes", description.layout->block_bytes)
        .Field("block_stride", description.layout->block_stride)
        .Field("blocks", description.layout->blocks)
        .EndObject();
  }
  WritePaths(PathsOf(buffer, paths), writer);
  writer->Key("chunks").BeginList().EndList();  // of paths that cut a buffer; none does yet
  writer->Field("uses", buffer.uses()).EndObject();
}

}  // namespace gantry::api
