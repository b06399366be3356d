{{/* Ends the rendering where an object of the Prometheus operator is asked for and its kinds are not there. Takes (list root value). */}}
{{- define "gantry.needsPrometheusOperator" -}}
{{- $root := index . 0 }}
{{- if not ($root.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") }}
{{- fail (printf "%s needs the CRDs of the Prometheus operator (monitoring.coreos.com/v1), which this cluster has not" (index . 1)) }}
{{- end }}
{{- end }}

{{/* An endpoint of a PodMonitor. Takes (list port values). */}}
{{- define "gantry.endpoint" -}}
{{- $monitor := index . 1 -}}
- port: {{ index . 0 }}
  path: /metrics
  {{- with $monitor.interval }}
  interval: {{ . }}
  {{- end }}
  {{- with $monitor.scrapeTimeout }}
  scrapeTimeout: {{ . }}
  {{- end }}
  {{- with $monitor.relabelings }}
  relabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $monitor.metricRelabelings }}
  metricRelabelings:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/*
The groups of files/rules/*.yaml without what is left out, with further labels, other thresholds (the number at the end of an
alert's expression) and whole addresses of runbooks. Nothing is a template in there: {{ }} is Prometheus'.
*/}}
{{- define "gantry.rules" -}}
{{- $left := .Values.monitoring.rules.disabled }}
{{- $labels := .Values.monitoring.rules.alertLabels }}
{{- $thresholds := deepCopy .Values.monitoring.rules.thresholds }}
{{- $runbooks := .Values.monitoring.rules.runbookBase | trimSuffix "/" }}
{{- $groups := list }}
{{- range $path, $_ := .Files.Glob "files/rules/*.yaml" }}
{{- range $group := ($.Files.Get $path | fromYaml).groups }}
{{- $rules := list }}
{{- range $rule := $group.rules }}
{{- if not (has ($rule.alert | default $rule.record) $left) }}
{{- if and $rule.alert $labels }}
{{- $_ := set $rule "labels" (mergeOverwrite ($rule.labels | default dict) (deepCopy $labels)) }}
{{- end }}
{{- if hasKey $thresholds ($rule.alert | default "") }}
{{- $_ := set $rule "expr" (regexReplaceAll "[0-9.]+\\s*$" $rule.expr (index $thresholds $rule.alert | toJson)) }}
{{- $_ := unset $thresholds $rule.alert }}
{{- end }}
{{- if and $runbooks (hasKey ($rule.annotations | default dict) "runbook_url") }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s/%s" $runbooks $rule.annotations.runbook_url) }}
{{- end }}
{{- $rules = append $rules $rule }}
{{- end }}
{{- end }}
{{- if $rules }}
{{- $groups = append $groups (set $group "rules" $rules) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $name, $_ := $thresholds }}
{{- fail (printf "monitoring.rules.thresholds names %s, which is no alert, or one that is left out: docs/alerts.md has them all" $name) }}
{{- end }}
{{- toYaml $groups }}
{{- end }}
