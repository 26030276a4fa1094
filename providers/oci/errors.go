package oci

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const elsewhere = "a page instead of an answer of the API; check auth.region and proxies"

// read decodes an answer, or maps it to the common vocabulary of errors.
func read(answer *http.Response, what string, out any) error {
	body, err := io.ReadAll(answer.Body) // which the client below bounds
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	if answer.StatusCode >= http.StatusMultipleChoices {
		return apiError(answer, what, body)
	}
	if out == nil && len(body) == 0 {
		return nil
	}
	if !strings.Contains(answer.Header.Get("Content-Type"), "json") {
		err = errors.New("it is not JSON")
	} else {
		if out == nil {
			out = new(any)
		}
		err = json.Unmarshal(body, out)
	}
	if err == nil {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, RequestID: answer.Header.Get("Opc-Request-Id"),
		Message: elsewhere, Cause: err,
	}
}

// classes are those of codes that tell more than the status.
func classes() map[string]error {
	return map[string]error{
		"LimitExceeded": cloudapi.ErrQuota, "QuotaExceeded": cloudapi.ErrQuota,
		"RelatedResourceNotAuthorizedOrNotFound": cloudapi.ErrUnauthorized, "InsufficientServicePermissions": cloudapi.ErrUnauthorized,
		"SignUpRequired": cloudapi.ErrUnauthorized, "TooManyRequests": cloudapi.ErrRateLimited,
	}
}

// apiError maps an answer other than success. A page that is not JSON comes from something in between: it says nothing about an object.
func apiError(answer *http.Response, what string, body []byte) error {
	mapped := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RequestID: answer.Header.Get("Opc-Request-Id"), RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	var said struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if !strings.Contains(answer.Header.Get("Content-Type"), "json") || json.Unmarshal(body, &said) != nil || said.Code == "" {
		mapped.Class, mapped.Message = cloudapi.ErrTransient, elsewhere
		return mapped
	}
	mapped.Message = said.Code + ": " + said.Message
	if class, ok := classes()[said.Code]; ok {
		mapped.Class = class
	}
	return mapped
}
