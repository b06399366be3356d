{{/*
The values of the library for what is injected: names as this release's. Takes (list root namespace); without a namespace it is
what is the same for all of them.
*/}}
{{- define "gantry.injected" -}}
{{- $root := index . 0 }}
{{- $values := deepCopy $root.Values.sidecar }}
{{- $_ := set $values "image" (include "gantry.sidecarImage" $root | fromYaml) }}
{{- if not $values.fullnameOverride }}
{{- $_ := set $values "fullnameOverride" (include "gantry.fullname" $root) }}
{{- end }}
{{- if gt (len .) 1 }}
{{- $_ := set $values "namespaceOverride" (index . 1) }}
{{- end }}
{{- toYaml $values }}
{{- end }}

{{/* A value of YAML as an expression of CEL. Every entry is dyn(): CEL's lists and maps are of one type each. */}}
{{- define "gantry.cel" -}}
{{- if kindIs "map" . -}}
{ {{- $map := . }}{{ range $index, $key := keys $map | sortAlpha }}{{ if $index }}, {{ end }}{{ $key | quote }}: dyn({{ include "gantry.cel" (index $map $key) }}){{ end -}} }
{{- else if kindIs "slice" . -}}
[ {{- range $index, $each := . }}{{ if $index }}, {{ end }}dyn({{ include "gantry.cel" $each }}){{ end -}} ]
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ int64 . }}
{{- else -}}
{{ toJson . }}
{{- end }}
{{- end }}

{{/* A key of a map as a JSON pointer writes it. */}}
{{- define "gantry.pointerKey" -}}
{{- . | replace "~" "~0" | replace "/" "~1" }}
{{- end }}

{{/* The patches, one to a list of its own; those of a list are in the order in which the library gives its entries. */}}
{{- define "gantry.cel.patches" -}}
{{- $library := dict "root" . "values" (include "gantry.injected" (list .) | fromYaml) }}
{{- $spec := include "gantry-lib.podSpec" $library | fromYaml }}
{{- $group := include "gantry.cel" (index $spec.securityContext.supplementalGroups 0) }}
{{- $init := $spec.initContainers -}}
(has(object.spec.initContainers)
  ? [ {{- range $index, $each := $init }}{{ if $index }}, {{ end }}JSONPatch{op: "add", path: "/spec/initContainers/-", value: dyn({{ include "gantry.cel" $each }})}{{ end -}} ]
  : [JSONPatch{op: "add", path: "/spec/initContainers", value: dyn({{ include "gantry.cel" $init }})}])
+ (has(object.spec.volumes)
  ? [ {{- range $index, $each := $spec.volumes }}{{ if $index }}, {{ end }}JSONPatch{op: "add", path: "/spec/volumes/-", value: dyn({{ include "gantry.cel" $each }})}{{ end -}} ]
  : [JSONPatch{op: "add", path: "/spec/volumes", value: dyn({{ include "gantry.cel" $spec.volumes }})}])
{{- with $spec.resourceClaims }}
+ (has(object.spec.resourceClaims)
  ? [ {{- range $index, $each := . }}{{ if $index }}, {{ end }}JSONPatch{op: "add", path: "/spec/resourceClaims/-", value: dyn({{ include "gantry.cel" $each }})}{{ end -}} ]
  : [JSONPatch{op: "add", path: "/spec/resourceClaims", value: dyn({{ include "gantry.cel" . }})}])
{{- end }}
+ (!has(object.spec.securityContext)
  ? [JSONPatch{op: "add", path: "/spec/securityContext", value: dyn({"supplementalGroups": dyn([dyn({{ $group }})])})}]
  : !has(object.spec.securityContext.supplementalGroups)
  ? [JSONPatch{op: "add", path: "/spec/securityContext/supplementalGroups", value: dyn([dyn({{ $group }})])}]
  : [JSONPatch{op: "add", path: "/spec/securityContext/supplementalGroups/-", value: dyn({{ $group }})}])
{{- if $spec.shareProcessNamespace }}
+ [JSONPatch{op: "add", path: "/spec/shareProcessNamespace", value: dyn(true)}]
{{- end }}
{{- with $spec.terminationGracePeriodSeconds }}
+ [JSONPatch{op: "add", path: "/spec/terminationGracePeriodSeconds", value: dyn({{ include "gantry.cel" . }})}]
{{- end }}
{{- range $key, $value := include "gantry-lib.podLabels" . | fromYaml }}
+ [JSONPatch{op: "add", path: "/metadata/labels/{{ include "gantry.pointerKey" $key }}", value: dyn({{ $value | quote }})}]
{{- end }}
{{- with include "gantry-lib.podAnnotations" $library | fromYaml }}
+ (has(object.metadata.annotations)
  ? [ {{- $annotations := . }}{{ range $index, $key := keys . | sortAlpha }}{{ if $index }}, {{ end }}JSONPatch{op: "add", path: "/metadata/annotations/{{ include "gantry.pointerKey" $key }}", value: dyn({{ index $annotations $key | toJson }})}{{ end -}} ]
  : [JSONPatch{op: "add", path: "/metadata/annotations", value: dyn({{ include "gantry.cel" . }})}])
{{- end }}
{{- end }}

{{/* What the workload's containers get, as an apply configuration: merged by the names of containers, variables and mounts. */}}
{{- define "gantry.cel.workload" -}}
{{- $library := dict "root" . "values" (include "gantry.injected" (list .) | fromYaml) }}
{{- $chosen := .Values.sidecar.workloadContainers -}}
Object{
  spec: Object.spec{
    containers: object.spec.containers.filter(c, {{ with $chosen }}c.name in {{ toJson . }}{{ else }}true{{ end }}).map(c, Object.spec.containers{
      name: c.name,
      env: [
        {{- range $index, $each := include "gantry-lib.workload.env" $library | fromYamlArray }}
        {{- if $index }}, {{ end }}Object.spec.containers.env{name: {{ $each.name | quote }}, value: {{ $each.value | quote }}}
        {{- end -}} ],
      volumeMounts: [
        {{- range $index, $each := include "gantry-lib.workload.volumeMounts" $library | fromYamlArray }}
        {{- if $index }}, {{ end }}Object.spec.containers.volumeMounts{name: {{ $each.name | quote }}, mountPath: {{ $each.mountPath | quote }}
        {{- with $each.subPath }}, subPath: {{ . | quote }}{{ end }}{{ with $each.readOnly }}, readOnly: true{{ end }}}
        {{- end -}} ]
    })
  }
}
{{- end }}
