package openstack

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// apiError maps an error of the SDK to cloudapi's classes. caught adds details from the transport.
func apiError(err error, caught *cloudapi.LastResponse, operation string) error {
	if err == nil {
		return nil
	}
	if _, sent := caught.Last(); sent != nil {
		return cloudapi.Describe(sent, operation)
	}
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: operation, Message: err.Error(), Cause: err}
	if own, ok := errors.AsType[*cloudapi.Error](err); ok {
		return own // a login failed during the call
	}
	if relogin, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		if own, ok := errors.AsType[*cloudapi.Error](relogin.ErrReauth); ok {
			return cloudapi.Describe(own, operation+", logging in again")
		}
		return mapped
	}
	if missing, ok := errors.AsType[*gophercloud.ErrEndpointNotFound](err); ok {
		mapped.Class, mapped.Message = cloudapi.ErrInvalid, missing.Error()+"; check region and os-endpoint-type, and that the cloud has the service"
		return mapped
	}
	said, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return mapped
	}
	mapped.Status = said.Actual
	mapped.RequestID = cmp.Or(said.ResponseHeader.Get("X-Openstack-Request-Id"), said.ResponseHeader.Get("X-Compute-Request-Id"))
	mapped.RetryAfter = cloudapi.ParseRetryAfter(said.ResponseHeader, time.Now())
	kind, message, recognised := readFault(said.Body)
	mapped.Message = message
	if !recognised {
		mapped.Message = "an answer that is not from the service (" + http.StatusText(said.Actual) + "); check the endpoints of the catalog, and proxies"
	}
	mapped.Class = classOf(said.Actual, kind, message, recognised)
	return mapped
}

// classOf returns the class of a response. One that is not from the service proves nothing.
func classOf(status int, kind, message string, recognised bool) error {
	switch {
	case status == http.StatusUnauthorized:
		return cloudapi.ErrUnauthorized
	case status == http.StatusRequestEntityTooLarge || status == http.StatusTooManyRequests:
		return cloudapi.ErrRateLimited // Nova once used 413 for overLimit
	case !recognised:
		return cloudapi.ErrTransient
	case kind == "OverQuota" || kind == "RoutesExhausted" || kind == "IpAddressGenerationFailure" || kind == "ExternalIpAddressExhausted",
		status == http.StatusForbidden && strings.Contains(strings.ToLower(message), "quota"):
		return cloudapi.ErrQuota
	}
	return cloudapi.ClassOfStatus(status)
}

// faultOf returns the type of a failure in Neutron, or "".
func faultOf(err error) string {
	said, _ := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	kind, _, _ := readFault(said.Body)
	return kind
}

// readFault finds the message of a failure. Each service has its own form; see "Error bodies" of their API references.
func readFault(body []byte) (kind, message string, recognised bool) {
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil {
		return "", "", false
	}
	var text string
	if json.Unmarshal(object["faultstring"], &text) == nil && text != "" { // Octavia
		return "", text, true
	}
	if json.Unmarshal(object["description"], &text) == nil && text != "" { // Barbican
		return "", text, true
	}
	for key, raw := range object {
		var inner struct{ Type, Message, Title string }
		if json.Unmarshal(raw, &inner) == nil && (inner.Message != "" || inner.Type != "") {
			if key == "NeutronError" {
				return inner.Type, inner.Message, true
			}
			return key, inner.Message, true // Nova uses the fault as key, Keystone "error"
		}
	}
	return "", "", false
}
