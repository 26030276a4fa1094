package photon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
)

const (
	// maxAnswer bounds one answer.
	maxAnswer = 16 << 20
	// maxMessage bounds a text that somebody else wrote.
	maxMessage = 300

	checkAddress = "check target, dialect and proxies"
)

// Codes of errors that matter here.
const (
	codeVMNotFound  = "VmNotFound"
	codePageExpired = "PageExpired"
	codeNoToken     = "MissingAuthToken"
)

// refusal is what the API says of a call that it did not carry out.
type refusal struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (r refusal) Error() string { return r.Code }

// codeOf is the code of an error, "" where the API has said none.
func codeOf(err error) string {
	said, _ := errors.AsType[refusal](err)
	return said.Code
}

// read decodes an answer, or maps it to the common vocabulary of errors. What is not an object in JSON is no answer of the API, and only
// one code says that a virtual machine does not exist: wrong paths and dialects are not found either.
func read(answer *http.Response, what string, out any) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	isJSON := strings.Contains(answer.Header.Get("Content-Type"), "json") && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{"))
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, RequestID: answer.Header.Get("request-id")}
	var said refusal
	switch {
	case !isJSON:
		mapped.Message = "a page instead of an answer of the API; " + checkAddress
		if answer.StatusCode == http.StatusUnauthorized {
			mapped.Class, mapped.Cause = cloudapi.ErrUnauthorized, session.ErrEnded
		}
		return mapped
	case answer.StatusCode == http.StatusOK || answer.StatusCode == http.StatusCreated:
		if json.Unmarshal(body, out) == nil {
			return nil
		}
		mapped.Message = "the answer is not that of the API; " + checkAddress
		return mapped
	case json.Unmarshal(body, &said) == nil:
		mapped.Cause = said
		mapped.Message = strings.TrimSuffix(said.Code+": "+said.Message, ": ")
		mapped.Message = mapped.Message[:min(len(mapped.Message), maxMessage)]
	}
	mapped.RetryAfter = cloudapi.ParseRetryAfter(answer.Header, time.Now())
	if mapped.Class = cloudapi.ClassOfStatus(answer.StatusCode); answer.StatusCode == http.StatusUnauthorized {
		mapped.Cause = session.ErrEnded
		if said.Code == codeNoToken {
			mapped.Message += "; set authentication = true"
		}
	}
	if errors.Is(mapped.Class, cloudapi.ErrNotFound) && said.Code != codeVMNotFound {
		mapped.Class = cloudapi.ErrTransient
	}
	return mapped
}

// untrusted is what to do about a certificate that is not trusted.
const untrusted = "set " + keyCAFile + " to the authority that signed it, or " + keyIgnore + " = true, which Kubernetes' own provider had always"
