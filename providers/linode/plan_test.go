package linode

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// TestPlanShowsNoKey: of TLS, plan shows the fingerprint of the certificate, as Linode does, and never the key.
func TestPlanShowsNoKey(t *testing.T) {
	t.Parallel()
	secret := newSecret(t, "web", 1)
	cert, key := string(secret.Data[v1.TLSCertKey]), string(secret.Data[v1.TLSPrivateKeyKey])
	fields := configFields{Port: 443, Protocol: protocolHTTPS, Cert: cert, Key: privateKey(key)}
	r := &reconciler{}
	shown := services.Fields(r.creation(&nodeBalancerRequest{Label: "web", Configs: []configFields{fields}}, 0).Compare())
	for _, st := range []step{
		{kind: createPort, fields: fields},
		{kind: updatePort, fields: fields, reasons: []string{fieldCertificate, "ssl_key"}},
		{kind: rebuildPort, fields: fields, reasons: []string{fieldCertificate, "ssl_key", "nodes"}},
	} {
		shown = append(shown, services.Fields(st.compare(&nodeBalancer{}))...)
	}
	prints := 0
	for _, f := range shown {
		assert.NotContains(t, f.Before+f.After, "PRIVATE KEY", f.Name)
		assert.NotContains(t, f.Before+f.After, "BEGIN CERTIFICATE", f.Name)
		if f.After == fingerprint(cert) {
			prints++
		}
	}
	assert.Equal(t, 4, prints)
}
