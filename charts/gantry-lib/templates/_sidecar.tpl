{{/* One flag of the sidecar as an argument: switches without a value, lists with commas, whole numbers. Takes (list name value). */}}
{{- define "gantry-lib.flag" -}}
{{- $name := index . 0 }}
{{- $value := index . 1 }}
{{- if kindIs "bool" $value }}
{{- if $value }}--{{ $name }}{{ end }}
{{- else if kindIs "slice" $value }}--{{ $name }}={{ join "," $value }}
{{- else if kindIs "float64" $value }}--{{ $name }}={{ int64 $value }}
{{- else }}--{{ $name }}={{ $value }}
{{- end }}
{{- end }}

{{/* The arguments of the sidecar, a list. */}}
{{- define "gantry-lib.sidecar.args" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $listen := $values.listen }}
{{- $ports := dict "listen.healthPort" $listen.healthPort "listen.metricsPort" $listen.metricsPort }}
{{- if $values.peers.tcp }}
{{- $_ := set (set $ports "listen.peerPort" $listen.peerPort) "listen.dataPort" $listen.dataPort }}
{{- end }}
{{- with index $values.flags "rest-listen" }}
{{- $_ := set $ports "flags.rest-listen" (regexFind "[0-9]+$" .) }}
{{- end }}
{{- include "gantry-lib.checkListen" (list "listen.address" $listen.address $ports) }}
{{- $args := list "--name=$(GANTRY_POD_NAME)" (printf "--run-dir=%s" $values.runDir) }}
{{- if $values.slot.enabled }}
{{- $args = concat $args (list (printf "--node-dir=%s" $values.slot.nodeDir) "--require-slot") }}
{{- range $values.slot.nodeUids }}
{{- $ends := splitList "-" . }}
{{- if or (gt (int64 (first $ends)) (int64 (last $ends))) (gt (int64 (last $ends)) 4294967294) }}
{{- fail (printf "gantry-lib: slot.nodeUids has %s, which is neither the number of a user nor a range of them" .) }}
{{- end }}
{{- end }}
{{- with $values.slot.nodeUids }}
{{- $args = append $args (printf "--node-uids=%s" (join "," .)) }}
{{- end }}
{{- end }}
{{- $args = append $args (printf "--health-listen=%s" (include "gantry-lib.hostPort" (list $listen.address $listen.healthPort))) }}
{{- $args = append $args (printf "--metrics-listen=%s" (include "gantry-lib.hostPort" (list $listen.address $listen.metricsPort))) }}
{{- if $values.peers.tcp }}
{{- $args = append $args (printf "--peer-listen=%s" (include "gantry-lib.hostPort" (list $listen.address $listen.peerPort))) }}
{{- $args = append $args (printf "--data-listen=%s" (include "gantry-lib.hostPort" (list $listen.address $listen.dataPort))) }}
{{- $args = concat $args (include "gantry-lib.authentication.args" . | fromYamlArray) }}
{{- end }}
{{- range $name := keys $values.flags | sortAlpha }}
{{- with include "gantry-lib.flag" (list $name (index $values.flags $name)) }}
{{- $args = append $args . }}
{{- end }}
{{- end }}
{{- include "gantry-lib.checkExtraArgs" (list $args $values.extraArgs) }}
{{- toYaml (concat $args $values.extraArgs) }}
{{- end }}

{{/* A gRPC probe. Takes (list port service probe). */}}
{{- define "gantry-lib.probe" -}}
{{- toYaml (merge (dict "grpc" (dict "port" (index . 0) "service" (index . 1))) (index . 2)) }}
{{- end }}

{{/* The sidecar's container, an entry of initContainers: native, started before the workload and ended after it. */}}
{{- define "gantry-lib.sidecar" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $resources := deepCopy $values.resources }}
{{- if $values.slot.enabled }}
{{- $limits := merge (dict $values.slot.resource 1) ($resources.limits | default dict) }}
{{- $requests := merge (dict $values.slot.resource 1) ($resources.requests | default dict) }}
{{- $_ := set (set $resources "limits" $limits) "requests" $requests }}
{{- end }}
{{- with $values.claims }}
{{- $claims := list }}
{{- range . }}
{{- $claims = append $claims (pick . "name" "request") }}
{{- end }}
{{- $_ := set $resources "claims" $claims }}
{{- end -}}
name: {{ $values.containerName | quote }}
image: {{ include "gantry-lib.image" $values.image | quote }}
imagePullPolicy: {{ $values.image.pullPolicy }}
restartPolicy: Always
args:
  {{- include "gantry-lib.sidecar.args" . | nindent 2 }}
env:
  - name: GANTRY_POD_NAME
    valueFrom:
      fieldRef:
        apiVersion: v1
        fieldPath: metadata.name
  - name: GANTRY_POD_NAMESPACE
    valueFrom:
      fieldRef:
        apiVersion: v1
        fieldPath: metadata.namespace
  {{- with $values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- if $values.peers.tcp }}
  - name: gantry-peer
    containerPort: {{ $values.listen.peerPort }}
    protocol: TCP
  - name: gantry-data
    containerPort: {{ $values.listen.dataPort }}
    protocol: TCP
  {{- end }}
  - name: gantry-health
    containerPort: {{ $values.listen.healthPort }}
    protocol: TCP
  - name: gantry-metrics
    containerPort: {{ $values.listen.metricsPort }}
    protocol: TCP
startupProbe:
  {{- include "gantry-lib.probe" (list $values.listen.healthPort "readiness" $values.probes.startup) | nindent 2 }}
{{- with $values.probes.readiness }}
readinessProbe:
  {{- include "gantry-lib.probe" (list $values.listen.healthPort "readiness" .) | nindent 2 }}
{{- end }}
livenessProbe:
  {{- include "gantry-lib.probe" (list $values.listen.healthPort "liveness" $values.probes.liveness) | nindent 2 }}
resources:
  {{- toYaml $resources | nindent 2 }}
securityContext:
  {{- toYaml $values.securityContext | nindent 2 }}
terminationMessagePolicy: FallbackToLogsOnError
volumeMounts:
  - name: gantry-run
    mountPath: {{ $values.runDir | quote }}
  {{- with include "gantry-lib.authentication.mounts" . | fromYamlArray }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* Volumes of the pod that the sidecar needs, a list. */}}
{{- define "gantry-lib.volumes" -}}
{{- $values := include "gantry-lib.values" . | fromYaml -}}
- name: gantry-run
  emptyDir:
    sizeLimit: 16Mi
{{- if $values.nixlPlugin.enabled }}
- name: gantry-nixl
  emptyDir:
    sizeLimit: 64Mi
{{- end }}
{{- with include "gantry-lib.authentication.volumes" . | fromYamlArray }}
{{ toYaml . }}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* DRA claims of the pod (resourceClaims), a list; may be empty. */}}
{{- define "gantry-lib.claims" -}}
{{- $values := include "gantry-lib.values" . | fromYaml }}
{{- $claims := list }}
{{- range $values.claims }}
{{- $claims = append $claims (omit . "request") }}
{{- end }}
{{- toYaml (uniq $claims) }}
{{- end }}
