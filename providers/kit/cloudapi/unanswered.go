package cloudapi

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
)

// Unclear is the error of an answer that says nothing for certain.
func Unclear(operation, format string, args ...any) error {
	return &Error{Class: ErrTransient, Operation: operation, Message: fmt.Sprintf(format, args...)}
}

// Unanswered is the error of a call without an answer; remedy is what to do about a certificate that is not trusted. The address that
// net/http puts before the error says nothing new.
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
