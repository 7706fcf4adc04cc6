{{- define "common.capabilities.has" -}}
{{- $all := .context.Capabilities.APIVersions -}}
{{- if or (empty $all) ($all.Has .version) -}}true{{- end -}}
{{- end -}}
{{- define "common.capabilities.policy" -}}
{{- if semverCompare "<1.21-0" .Capabilities.KubeVersion.Version -}}policy/v1beta1{{- else -}}policy/v1{{- end -}}
{{- end -}}
{{- define "common.tplvalues" -}}
{{- if typeIs "string" .value }}{{ tpl .value .context }}{{ else }}{{ tpl (.value | toYaml) .context }}{{ end }}
{{- end -}}
