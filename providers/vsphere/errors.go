package vsphere

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// apiError maps an error of the SDK to the common classes. last is the transport's last response, because the SDK keeps only texts.
func apiError(err error, last *cloudapi.LastResponse, vcenter, what string) error {
	if err == nil {
		return nil
	}
	what = fmt.Sprintf("vCenter %s: %s", vcenter, what)
	if f := faultOf(err); f != nil {
		return &cloudapi.Error{Class: classOfFault(f), Operation: what, Message: faultText(f, err), Cause: err}
	}
	if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: certificateAdvice(bad), Cause: bad}
	}
	if _, ok := errors.AsType[*cloudapi.Error](err); ok {
		return cloudapi.Describe(err, what)
	}
	answer, failed := last.Last()
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), failed != nil, answer == nil:
		return &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: withoutURL(err), Cause: err}
	case answer.Status >= http.StatusBadRequest:
		class := cloudapi.ClassOfStatus(answer.Status)
		if errors.Is(class, cloudapi.ErrNotFound) || errors.Is(class, cloudapi.ErrInvalid) {
			class = cloudapi.ErrTransient // from a proxy: the API has no such response
		}
		return &cloudapi.Error{
			Class: class, Operation: what, Status: answer.Status, RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
			Message: "no answer of vCenter; check the server and proxies", Cause: err,
		}
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.Status,
		Message: "the answer is not that of vCenter (" + shorten(withoutURL(err)) + "); check the server and proxies", Cause: err,
	}
}

// withoutURL returns an error's text without the redundant address that net/http prepends.
func withoutURL(err error) string {
	if inner := errors.Unwrap(err); inner != nil && strings.Contains(err.Error(), "://") {
		return inner.Error()
	}
	return err.Error()
}

// certificateAdvice returns the advice about a certificate.
func certificateAdvice(err *tls.CertificateVerificationError) string {
	text := "the certificate is not trusted: " + err.Err.Error() + "; set caFile to the authority that signed it"
	if len(err.UnverifiedCertificates) > 0 {
		text += ", or thumbprint, which is " + soap.ThumbprintSHA256(err.UnverifiedCertificates[0]) + " if this is your vCenter"
	}
	return text
}

// faultOf returns the fault that an error carries, or nil.
func faultOf(err error) any {
	for err != nil {
		if soap.IsSoapFault(err) {
			return soap.ToSoapFault(err).VimFault()
		}
		if e, ok := err.(*cloudapi.Error); ok { //nolint:errorlint // the chain is walked here
			err = e.Cause
			continue
		}
		err = errors.Unwrap(err)
	}
	return nil
}

// classOfFault returns the class of a fault of vCenter.
func classOfFault(f any) error {
	switch f.(type) {
	case types.NotAuthenticated, types.InvalidLogin, types.NoPermission, types.InvalidLocale, types.NoClientCertificate:
		return cloudapi.ErrUnauthorized
	case types.ManagedObjectNotFound:
		return cloudapi.ErrNotFound
	case types.InvalidArgument, types.InvalidRequest, types.InvalidProperty, types.NotSupported, types.MethodNotFound:
		return cloudapi.ErrInvalid
	}
	return cloudapi.ErrTransient
}

func faultText(f any, err error) string {
	name := reflect.TypeOf(f).Name()
	text := ""
	if soap.IsSoapFault(err) {
		text = soap.ToSoapFault(err).String
	}
	switch f := f.(type) {
	case types.NoPermission:
		if f.Object != nil {
			text = fmt.Sprintf("the account lacks %s on %s", f.PrivilegeId, f.Object.Value)
		}
	case types.InvalidLogin:
		text = "user name or password is wrong"
	case types.ManagedObjectNotFound:
		text = f.Obj.Value
	}
	return strings.TrimSpace(strings.TrimSuffix(name+": "+text, ": "))
}

func isFault[F any](err error) bool {
	_, ok := faultOf(err).(F)
	return ok
}

// soapFault matches the kind of a fault in an answer.
var soapFault = regexp.MustCompile(`<detail>\s*<(?:\w+:)?(\w+?)Fault[\s>/]`)

// passingFaults are those of vCenter itself.
var passingFaults = map[string]bool{
	"SystemError": true, "HostCommunication": true, "HostNotConnected": true, "Timedout": true, "RequestCanceled": true, "RuntimeFault": true,
}

const faultLogin = "InvalidLogin"

// kindOfFault returns the kind of a fault in an answer, "" if there is none.
func kindOfFault(body []byte) string {
	if m := soapFault.FindSubmatch(body); m != nil {
		return string(m[1])
	}
	return ""
}

// unclearError returns the error for a response of vCenter without a definite meaning.
func unclearError(format string, args ...any) error {
	return &cloudapi.Error{Class: cloudapi.ErrTransient, Message: fmt.Sprintf(format, args...)}
}

// shorten shortens a text from another program.
func shorten(text string) string { return text[:min(len(text), 200)] }
