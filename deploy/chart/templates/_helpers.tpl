{{- /* The beginning of the names of all objects. */ -}}
{{- define "hami.name" -}}
{{- $name := contains "hami" .Release.Name | ternary .Release.Name (print .Release.Name "-hami") -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "hami.image" -}}
{{- $image := .Values.image | default dict -}}
{{ $image.repository | default "hami-py" }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "hami.kubeSchedulerImage" -}}
{{- $image := ((.Values.scheduler | default dict).kubeScheduler | default dict).image | default dict -}}
{{- $cluster := regexFind "^v[0-9]+[.][0-9]+[.][0-9]+" .Capabilities.KubeVersion.Version -}}
{{ $image.repository | default "registry.k8s.io/kube-scheduler" }}:{{ $image.tag | default $cluster }}
{{- end -}}

{{- /* imagePullPolicy, of a container of ours. */ -}}
{{- define "hami.pullPolicy" -}}
{{- with (.Values.image | default dict).pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- end -}}

{{- define "hami.schedulerName" -}}
{{ (.Values.scheduler | default dict).name | default "hami-scheduler" }}
{{- end -}}

{{- /* The settings file. */ -}}
{{- define "hami.settings" -}}
{{- $settings := deepCopy (.Values.settings | default dict) -}}
{{- if not (hasKey $settings "schedulers") -}}
{{- $_ := set $settings "schedulers" (list (include "hami.schedulerName" .)) -}}
{{- end -}}
{{- /* No pod may write into the directories of the node part; the settings know the default ones. */ -}}
{{- $node := .Values.node | default dict -}}
{{- $kubelet := $node.kubeletDirectory | default "/var/lib/kubelet" -}}
{{- $guarded := list "/var/lib/hami" "/run/hami" "/var/run/hami" "/var/lib/kubelet/device-plugins" "/etc/cdi" "/run/cdi" "/var/run/cdi" "/sys/fs/cgroup" "/proc" -}}
{{- $more := append ($node.cdiDirectories | default list) (print $kubelet "/device-plugins") -}}
{{- if and (not (hasKey $settings "guarded_host_paths")) (ne (len $guarded) (len (concat $guarded $more | uniq))) -}}
{{- $_ := set $settings "guarded_host_paths" (concat $guarded $more | uniq) -}}
{{- end -}}
# How the webhook, the extender and the node agent read pods. docs/settings.md lists all fields.
{{ toYaml $settings }}
{{- end -}}

{{- define "hami.profiles" -}}
{{ (.Values.settings | default dict).profiles | default (list "hami") | toJson }}
{{- end -}}

{{- /* The resources of all profiles; first those that nodes publish. hami_py/model/pods/names.py has them, too. */ -}}
{{- define "hami.published" -}}
{{ list "nvidia.com/gpu" "nvidia.com/gpumem" "nvidia.com/gpucores" | toJson }}
{{- end -}}
{{- define "hami.resources" -}}
{{- $ours := dict
  "hami" (list "nvidia.com/gpu" "nvidia.com/gpumem" "nvidia.com/gpucores" "nvidia.com/gpumem-percentage" "nvidia.com/priority")
  "aliyun" (list "nvidia.com/gpu" "aliyun.com/gpu-mem" "aliyun.com/gpu-core.percentage") -}}
{{- $all := list -}}
{{- range include "hami.profiles" . | fromJsonArray -}}
{{- $all = concat $all (get $ours .) -}}
{{- end -}}
{{ $all | uniq | toJson }}
{{- end -}}

{{- /* Changed settings replace the pods. The scheduler's configuration depends on the same values. */ -}}
{{- define "hami.checksum" -}}
checksum/settings: {{ print (include "hami.settings" .) (include "hami.schedulerName" .) | sha256sum | trunc 16 }}
{{- end -}}

{{- define "hami.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* tolerations and priorityClassName of a part. */ -}}
{{- define "hami.placement" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* The label of the nodes with an agent, as a nodeSelector. */ -}}
{{- define "hami.nodeSelector" -}}
{{- $label := splitn "=" 2 ((.Values.node | default dict).label | default "hami.io/node=true") -}}
{{ $label._0 }}: {{ $label._1 | quote }}
{{- end -}}

{{- /* Where the webhook's certificate comes from. */ -}}
{{- define "hami.certificates" -}}
{{ ((.Values.webhook | default dict).certificates | default dict).source | default "self" }}
{{- end -}}
{{- define "hami.certificateSecret" -}}
{{- $given := ((.Values.webhook | default dict).certificates | default dict).secretName -}}
{{- $own := print (include "hami.name" .) "-webhook" -}}
{{- $sources := dict "self" $own "cert-manager" ($given | default (print $own "-tls")) "secret" $given -}}
{{ get $sources (include "hami.certificates" .) }}
{{- end -}}
