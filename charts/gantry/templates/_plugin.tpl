{{/* The arguments of gantry-device-plugin. */}}
{{- define "gantry.plugin.args" -}}
- --resource={{ .Values.resource }}
- --slots={{ int .Values.slots }}
- --kubelet-dir={{ .Values.kubeletDir }}
- --pod-resources-dir={{ .Values.podResourcesDir }}
- --cdi-dir={{ .Values.cdiDir }}
- --cdi-spec-dirs={{ join "," .Values.cdiSpecDirs }}
- --peer-dir={{ include "gantry.peerDir" . }}
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
- --rdma-devices={{ join "," . }}
{{- end }}
{{- with .Values.rdma.exclude }}
- --rdma-exclude={{ join "," . }}
{{- end }}
- "--metrics-listen={{ if .Values.metricsPort }}{{ .Values.listenAddress }}:{{ int .Values.metricsPort }}{{ end }}"
- "--health-listen={{ .Values.listenAddress }}:{{ int .Values.healthPort }}"
- --settle-ms={{ int .Values.settleMs }}
- --reconcile-ms={{ int .Values.reconcileMs }}
- --log-level={{ .Values.logLevel }}
{{- with .Values.extraArgs }}
{{ toYaml . }}
{{- end }}
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
