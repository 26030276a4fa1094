package cloudapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
)

// Unclear returns the error of a response without a definite meaning.
func Unclear(operation, format string, args ...any) error {
	return &Error{Class: ErrTransient, Operation: operation, Message: fmt.Sprintf(format, args...)}
}

// Unanswered returns the error of a call without a response; remedy is the advice about an untrusted certificate. The address that net/http
// prepends is left out as redundant.
func Unanswered(err error, operation, remedy string) error {
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &Error{
			Class: ErrTransient, Operation: operation, Cause: bad, Message: fmt.Sprintf("the certificate is not trusted: %v; %s", bad.Err, remedy),
		}
	}
	if named, ok := errors.AsType[*url.Error](err); ok {
		err = named.Err
	}
	return Describe(err, operation)
}
