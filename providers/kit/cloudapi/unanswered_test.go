package cloudapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUnanswered(t *testing.T) {
	t.Parallel()
	bad := &url.Error{Op: "Get", URL: "https://api", Err: &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}}
	err := Unanswered(bad, "listing", "name the authority")
	require.ErrorIs(t, err, ErrTransient)
	assert.Equal(t, "listing: temporary failure: the certificate is not trusted: x509: certificate signed by unknown authority; name the authority", err.Error())
	err = Unanswered(&url.Error{Op: "Get", URL: "https://api", Err: context.DeadlineExceeded}, "listing", "")
	assert.Equal(t, "listing: temporary failure: context deadline exceeded", err.Error())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, Unclear("reading", "the answer is %d", 7), ErrTransient)
}
