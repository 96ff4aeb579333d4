{{- define "projection-operator.serviceAccountName" -}}
{{- default .Release.Name .Values.serviceAccount.name -}}
{{- end }}

{{- define "projection-operator.labels" -}}
app.kubernetes.io/name: projection-operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: projection-operator
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "projection-operator.subjects" -}}
- kind: ServiceAccount
  name: {{ include "projection-operator.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
