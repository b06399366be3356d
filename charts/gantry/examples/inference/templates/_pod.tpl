{{/* Of a role's objects. A Service's name has no dots. Takes (list root role). */}}
{{- define "inference.name" -}}
{{- printf "%s-%s" ((index . 0).Release.Name | replace "." "-") (index . 1) }}
{{- end }}

{{/* The pod of a role, as it would be without Gantry. Takes (list root name role). */}}
{{- define "inference.podSpec" -}}
{{- $root := index . 0 }}
{{- $role := index . 2 -}}
automountServiceAccountToken: false
terminationGracePeriodSeconds: 60
containers:
  - name: engine
    image: {{ $root.Values.image | quote }}
    args:
      {{- with $root.Values.model }}
      - --model={{ . }}
      {{- end }}
      {{- toYaml $role.args | nindent 6 }}
    ports:
      - name: http
        containerPort: 8000
    readinessProbe:
      httpGet:
        path: /health
        port: http
    {{- if $role.gpus }}
    resources:
      limits:
        {{ $root.Values.gpuResource }}: {{ $role.gpus }}
    {{- end }}
    volumeMounts:
      - name: shm
        mountPath: /dev/shm
volumes:
  - name: shm
    emptyDir:
      medium: Memory
      sizeLimit: 8Gi
{{- end }}
