{{/* Names and labels. Each of these is one line of YAML, so that `template` can put it where it belongs without counting spaces. */}}
{{- define "sallyport.name" -}}
{{ if .Values.nameOverride }}{{ .Values.nameOverride }}{{ else }}{{ .Release.Name }}{{ end }}
{{- end }}

{{- define "sallyport.image" -}}
{{ .Values.image.repository }}:{{ if .Values.image.tag }}{{ .Values.image.tag }}{{ else }}{{ .Chart.AppVersion }}{{ end }}
{{- end }}

{{- define "sallyport.redirectImage" -}}
{{ .Values.redirectImage.repository }}:{{ if .Values.redirectImage.tag }}{{ .Values.redirectImage.tag }}{{ else }}{{ .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* what a selector looks for; it must not change between versions */}}
{{- define "sallyport.selector" -}}
{ app.kubernetes.io/name: sallyport, app.kubernetes.io/instance: {{ .Release.Name }} }
{{- end }}

{{- define "sallyport.agentSelector" -}}
{ app.kubernetes.io/name: agent, app.kubernetes.io/instance: {{ .Release.Name }} }
{{- end }}

{{- define "sallyport.labels" -}}
{ app.kubernetes.io/name: sallyport, app.kubernetes.io/instance: {{ .Release.Name }}, app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}, app.kubernetes.io/managed-by: {{ .Release.Service }} }
{{- end }}
