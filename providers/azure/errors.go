package azure

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// errorBody is the body of an error.
type errorBody struct {
	Code    string      `json:"code"`
	Message string      `json:"message"`
	Details []errorBody `json:"details"`
}

// text is the whole message, with its details.
func (b errorBody) text() string {
	parts := []string{b.Code + ": " + b.Message}
	for _, d := range b.Details {
		if d.Message != "" {
			parts = append(parts, d.Message)
		}
	}
	return strings.Join(parts, " ")
}

// apiError maps an answer other than success. A page that is not JSON says nothing about an object.
func apiError(answer *http.Response, what string, body []byte) error {
	mapped := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()), RequestID: answer.Header.Get("X-Ms-Request-Id"),
	}
	var said struct {
		Error errorBody `json:"error"`
	}
	if json.Unmarshal(body, &said) != nil || said.Error.Code == "" {
		status := answer.StatusCode
		if status < http.StatusInternalServerError && status != http.StatusUnauthorized && status != http.StatusTooManyRequests {
			return notTheAPI(answer, what, nil)
		}
		mapped.Message = http.StatusText(answer.StatusCode)
		return mapped
	}
	mapped.Message, mapped.Cause = said.Error.text(), armError{said.Error.Code}
	mapped.Class = classOf(said.Error, mapped.Class)
	return mapped
}

// classOf maps the codes of Azure whose status does not tell the class.
func classOf(e errorBody, class error) error {
	code := strings.ToLower(e.Code)
	switch {
	case errors.Is(class, cloudapi.ErrNotFound):
		if slices.Contains([]string{"resourcenotfound", "notfound", "resourcegroupnotfound", "instanceidnotfound", "instancenotfound"}, code) {
			return cloudapi.ErrNotFound
		}
		return cloudapi.ErrTransient // a subscription or a type that is not found says nothing about an object
	case strings.Contains(code, "canceledandsuperseded"), strings.Contains(code, "anotheroperation"), code == "preconditionfailed", code == "conflict",
		code == "referencedresourcenotprovisioned":
		return cloudapi.ErrConflict
	case strings.Contains(code, "limitreached"), strings.Contains(code, "quotaexceeded"), code == "subnetisfull":
		return cloudapi.ErrQuota
	case code == "authorizationfailed", code == "linkedauthorizationfailed":
		return cloudapi.ErrUnauthorized
	case code == "scopelocked", code == "missingsubscriptionregistration":
		return cloudapi.ErrInvalid // somebody must do something about it, and nothing is in progress
	case code == "toomanyrequests":
		return cloudapi.ErrRateLimited
	case slices.Contains([]string{"internalservererror", "internalerror", "gatewaytimeout", "operationtimedout", "serverbusy", "serviceunavailable"}, code):
		return cloudapi.ErrTransient
	}
	return class
}

// classOfAnswer finds refusals whose status looks like rate limiting but is not.
func classOfAnswer(status int, body []byte) error {
	if status == http.StatusTooManyRequests && strings.Contains(strings.ToLower(string(body)), "anotheroperation") {
		return cloudapi.ErrConflict
	}
	return nil
}

// armError carries the code of an error of Azure Resource Manager.
type armError struct{ code string }

// Error implements error.
func (e armError) Error() string { return e.code }

// codeGone is Azure's code where a resource has gone, as a scale set between two listings.
const codeGone = "ResourceNotFound"

// codeNoGroup is Azure's code where a resource group is not there.
const codeNoGroup = "ResourceGroupNotFound"

// isSkippedGroup reports whether a listing skips a resource group named by a Node's label, because it is missing or not accessible.
// Machines missing from a listing are not taken for absent.
func isSkippedGroup(err error) bool {
	return strings.EqualFold(codeOf(err), codeNoGroup) || strings.EqualFold(codeOf(err), "AuthorizationFailed")
}

// codeOf is the code of an error, or "".
func codeOf(err error) string {
	if e, ok := errors.AsType[armError](err); ok {
		return e.code
	}
	return ""
}

// read decodes an answer, or maps it to the common vocabulary of errors.
func read(answer *http.Response, what string, out any) error {
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return apiError(answer, what, body)
	}
	if out == nil || answer.StatusCode == http.StatusNoContent || answer.StatusCode == http.StatusAccepted && len(body) == 0 {
		if len(body) > 0 && !json.Valid(body) {
			return notTheAPI(answer, what, nil)
		}
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return notTheAPI(answer, what, err)
	}
	return nil
}

// notTheAPI is the error of an answer that something in between gave.
func notTheAPI(answer *http.Response, what string, cause error) error {
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode,
		Message: "the answer is not that of Azure Resource Manager; check resourceManagerEndpoint and proxies", Cause: cause,
	}
}
