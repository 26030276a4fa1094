package restapi

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"os"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Trust says which certificates of an API are accepted: those signed by the system's authorities, by a PEM file's, or by a bundle's, which
// may be encoded in base64 as installers write it.
type Trust struct {
	File, Bundle string
	// FilePlace and BundlePlace name the options that these come from.
	FilePlace, BundlePlace string
	// Insecure accepts any.
	Insecure bool
}

// TLS returns the settings of connections. It reports everything that is wrong at once.
func (t Trust) TLS() (*tls.Config, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	var problems []error
	if t.File != "" {
		text, err := os.ReadFile(t.File)
		switch {
		case err != nil:
			problems = append(problems, &schema.Problem{Place: t.FilePlace, Value: t.File, Reason: "cannot be read: " + err.Error()})
		case !pool.AppendCertsFromPEM(text):
			problems = append(problems, &schema.Problem{Place: t.FilePlace, Value: t.File, Reason: "holds no certificate in PEM"})
		}
	}
	if t.Bundle != "" {
		text := []byte(t.Bundle)
		if decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(t.Bundle), "")); err == nil {
			text = decoded
		}
		if !pool.AppendCertsFromPEM(text) {
			problems = append(problems, &schema.Problem{Place: t.BundlePlace, Reason: "holds no certificate in PEM"})
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	config.InsecureSkipVerify = t.Insecure // the operator's choice
	return config, errors.Join(problems...)
}
