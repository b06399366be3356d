{{/* The arguments of gantry-device-plugin, with what ends the rendering where they cannot work. */}}
{{- define "gantry.plugin.args" -}}
{{- $ports := dict "healthPort" .Values.healthPort }}
{{- with .Values.metricsPort }}
{{- $_ := set $ports "metricsPort" . }}
{{- end }}
{{- include "gantry-lib.checkListen" (list "listenAddress" .Values.listenAddress $ports) }}
{{- /* <kubeletDir>/gantry-<name>-<8 letters>-<6 digits>.sock, where a socket's path has 107 bytes. */}}
{{- $name := splitList "/" .Values.resource | last }}
{{- $bytes := add (len .Values.kubeletDir) (len $name) 29 }}
{{- if gt $bytes 107 }}
{{- fail (printf "resource and kubeletDir are too long: the plugin's socket in %s would have %d bytes, and a Unix socket takes 107; choose a resource with at most %d letters behind the slash" .Values.kubeletDir $bytes (sub 78 (len .Values.kubeletDir))) }}
{{- end }}
{{- $args := include "gantry.plugin.ownArgs" . | fromYamlArray }}
{{- include "gantry-lib.checkExtraArgs" (list $args .Values.extraArgs) }}
{{- toYaml (concat $args .Values.extraArgs) }}
{{- end }}

{{- define "gantry.plugin.ownArgs" -}}
- {{ printf "--resource=%s" .Values.resource | quote }}
- --slots={{ int .Values.slots }}
- {{ printf "--kubelet-dir=%s" .Values.kubeletDir | quote }}
- {{ printf "--pod-resources-dir=%s" .Values.podResourcesDir | quote }}
- {{ printf "--cdi-dir=%s" .Values.cdiDir | quote }}
- {{ printf "--cdi-spec-dirs=%s" (join "," .Values.cdiSpecDirs) | quote }}
- {{ printf "--peer-dir=%s" (include "gantry.peerDir" .) | quote }}
- --binding={{ .Values.binding }}
- --missing-gpu={{ .Values.missingGpu }}
- --peer-gpu-visibility={{ .Values.peerGpuVisibility }}
{{- if not .Values.rdma.enabled }}
- --no-rdma
{{- end }}
{{- if .Values.rdma.required }}
- --require-rdma
{{- end }}
{{- with .Values.rdma.devices }}
- {{ printf "--rdma-devices=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.rdma.exclude }}
- {{ printf "--rdma-exclude=%s" (join "," .) | quote }}
{{- end }}
- "--metrics-listen={{ if .Values.metricsPort }}{{ include "gantry-lib.hostPort" (list .Values.listenAddress .Values.metricsPort) }}{{ end }}"
- "--health-listen={{ include "gantry-lib.hostPort" (list .Values.listenAddress .Values.healthPort) }}"
- --settle-ms={{ int .Values.settleMs }}
- --reconcile-ms={{ int .Values.reconcileMs }}
- --log-level={{ .Values.logLevel }}
{{- end }}

{{/* Folders of the host, as {path: {name, type, readOnly}}: a folder that two settings name is mounted once, writable if one needs it. */}}
{{- define "gantry.plugin.folders" -}}
{{- $folders := dict }}
{{- range $index, $path := .Values.cdiSpecDirs }}
{{- $_ := set $folders $path (dict "name" (printf "cdi-specs-%d" $index) "type" "DirectoryOrCreate" "readOnly" true) }}
{{- end }}
{{- $_ := set $folders .Values.podResourcesDir (dict "name" "pod-resources" "type" "Directory" "readOnly" true) }}
{{- $_ := set $folders .Values.kubeletDir (dict "name" "kubelet" "type" "Directory" "readOnly" false) }}
{{- $_ := set $folders .Values.cdiDir (dict "name" "cdi" "type" "DirectoryOrCreate" "readOnly" false) }}
{{- $_ := set $folders (include "gantry.peerDir" .) (dict "name" "peers" "type" "DirectoryOrCreate" "readOnly" false) }}
{{- toYaml $folders }}
{{- end }}
