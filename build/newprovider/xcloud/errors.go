package xcloud

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// maxAnswer is the maximum size of an answer.
const maxAnswer = 10 << 20

// read decodes an answer or maps it to a common error.
func read(answer *http.Response, what string, out any) error {
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return apiError(answer, what, body)
	}
	if out == nil && answer.StatusCode == http.StatusNoContent {
		return nil
	}
	if out == nil {
		err = errors.New("an answer without content was expected")
	} else {
		err = json.Unmarshal(body, out)
	}
	if err == nil {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode,
		Message: "the answer is not that of the API; check XCLOUD_URL and proxies", Cause: err,
	}
}

// apiError maps an answer other than success. A page that is not JSON comes from a proxy and says nothing about an object.
func apiError(answer *http.Response, what string, body []byte) error {
	mapped := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(answer.StatusCode), Operation: what, Status: answer.StatusCode,
		RetryAfter: cloudapi.ParseRetryAfter(answer.Header, time.Now()),
	}
	var said struct {
		Message string `json:"message"`
	}
	if !strings.Contains(answer.Header.Get("Content-Type"), "json") || json.Unmarshal(body, &said) != nil {
		mapped.Class, mapped.Message = cloudapi.ErrTransient, "a page instead of an answer of the API; check XCLOUD_URL and proxies"
		return mapped
	}
	mapped.Message = said.Message
	return mapped
}
