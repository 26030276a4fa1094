package ovirt

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const (
	// maxAnswer bounds one answer.
	maxAnswer = 32 << 20
	// maxMessage bounds a text that somebody else wrote.
	maxMessage = 300

	checkAddress = "check uri and proxies"
)

// fault is what the engine says of a call that it did not carry out.
type fault struct {
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

func (f fault) String() string {
	text := strings.TrimSpace(strings.TrimPrefix(f.Reason+": "+f.Detail, ": "))
	return text[:min(len(text), maxMessage)]
}

// errDenied marks what the engine itself says that the user may not see.
var errDenied = errors.New("the user lacks the permission")

// noPermission is part of a fault that has the status of a bad request.
const noPermission = "insufficient permissions"

// read decodes an answer, or maps it to the common vocabulary of errors. What is not an object in JSON is no answer of the engine.
func read(answer *http.Response, what string, out any) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	isJSON := kind == "application/json"
	var said fault
	if isJSON {
		_ = json.Unmarshal(body, &said) // what it is not, it does not fill
	}
	if answer.StatusCode < http.StatusOK || answer.StatusCode >= http.StatusMultipleChoices {
		return refused(answer, what, body, isJSON, said)
	}
	bad := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode}
	switch trimmed := bytes.TrimSpace(body); {
	case !isJSON || !bytes.HasPrefix(trimmed, []byte("{")):
		bad.Message = "a page instead of an answer of the engine; " + checkAddress
	case said.Reason != "" || said.Detail != "":
		bad.Message = said.String()
	default:
		if err := json.Unmarshal(body, out); err == nil {
			return nil
		}
		bad.Message = "the answer is not that of the engine; " + checkAddress
	}
	return bad
}

// refused maps an answer other than success. A page comes from something in between: it says nothing about an object.
func refused(answer *http.Response, what string, body []byte, isJSON bool, said fault) error {
	mapped := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()), Message: said.String(),
	}
	switch {
	case answer.StatusCode == http.StatusUnauthorized:
		mapped.Message = "the token is not accepted" // with a page
	case strings.Contains(said.Detail, noPermission), answer.StatusCode == http.StatusForbidden && said != (fault{}):
		mapped.Class, mapped.Cause = cloudapi.ErrUnauthorized, errDenied
	case answer.StatusCode == http.StatusNotFound && len(bytes.TrimSpace(body)) == 0:
		mapped.Message = "the engine knows nothing there, or nothing that the user may see"
	case !isJSON || said == (fault{}):
		mapped.Message = "a page instead of an answer of the engine; " + checkAddress
		if !errors.Is(mapped.Class, cloudapi.ErrUnauthorized) && !errors.Is(mapped.Class, cloudapi.ErrRateLimited) {
			mapped.Class = cloudapi.ErrTransient
		}
	}
	return mapped
}

// untrusted is what to do about a certificate that is not trusted.
const untrusted = "set cafile (" + envCAFile + ", or " + envCABundle + ") to the engine's authority, which is /etc/pki/ovirt-engine/ca.pem there; " +
	"insecure=true switches the check off"
