{{/* The parts of a pod that both shapes have: the proxy's container but for where it stands, and its volumes. */}}
{{- define "sallyport.container" }}
          image: {{ template "sallyport.image" . }}
          imagePullPolicy: {{ .Values.image.pullPolicy }}
          securityContext:
            runAsNonRoot: true
            runAsUser: {{ .Values.uid }}
            runAsGroup: {{ .Values.uid }}
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
          startupProbe:
            httpGet: { path: /readyz, port: admin }
            periodSeconds: 1
            failureThreshold: 60
          # no traffic while the store is away or the CA has expired
          readinessProbe:
            httpGet: { path: /readyz, port: admin }
            periodSeconds: 5
          # the process, not what it needs: a store that is away is no reason to start the proxy anew
          livenessProbe:
            httpGet: { path: /healthz, port: admin }
            periodSeconds: 10
            timeoutSeconds: 5
          resources: {{- toYaml .Values.resources | nindent 12 }}
          {{- if .Values.env }}
          env: {{- toYaml .Values.env | nindent 12 }}
          {{- end }}
          volumeMounts:
            - { name: config, mountPath: /etc/sallyport, readOnly: true }
            - { name: credentials, mountPath: /etc/sallyport-credentials, readOnly: true }
            - { name: state, mountPath: /var/lib/sallyport }
            - { name: public, mountPath: /run/sallyport/public }
            - { name: tmp, mountPath: /tmp }
{{- end }}

{{- define "sallyport.volumes" }}
        - name: config
          configMap: { name: {{ template "sallyport.name" . }} }
        - name: credentials
          secret: { secretName: {{ .Values.credentials.secret }}, optional: true, defaultMode: 0440 }
        # the CA's key and the admin token: in memory, for the proxy alone
        - name: state
          emptyDir: { medium: Memory, sizeLimit: 32Mi }
        # certificates only
        - name: public
          emptyDir: { sizeLimit: 4Mi }
        - name: tmp
          emptyDir: { medium: Memory, sizeLimit: 16Mi }
{{- end }}

{{- define "sallyport.placement" }}
      {{- if .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml .Values.imagePullSecrets | nindent 8 }}
      {{- end }}
      {{- if .Values.nodeSelector }}
      nodeSelector: {{- toYaml .Values.nodeSelector | nindent 8 }}
      {{- end }}
      {{- if .Values.tolerations }}
      tolerations: {{- toYaml .Values.tolerations | nindent 8 }}
      {{- end }}
      {{- if .Values.affinity }}
      affinity: {{- toYaml .Values.affinity | nindent 8 }}
      {{- end }}
{{- end }}
