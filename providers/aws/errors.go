package aws

import (
	"bytes"
	"encoding/xml"
	"errors"
	"net/http"
	"slices"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// The codes of failures that have a class other than "invalid", from the lists "Common errors" and "Error codes" of the
// API references of EC2, Elastic Load Balancing and STS.
func throttleCodes() []string {
	return []string{
		"RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException",
		"TooManyRequestsException", "EC2ThrottledException", "BandwidthLimitExceeded", "SlowDown", "LimitExceededException", "Client.RequestLimitExceeded",
	}
}

func refusalCodes() []string {
	return []string{
		"AuthFailure", "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "ExpiredToken", "ExpiredTokenException", "RequestExpired",
		"InvalidClientTokenId", "SignatureDoesNotMatch", "IncompleteSignature", "MissingAuthenticationToken", "MissingAuthenticationTokenException",
		"OptInRequired", "UnrecognizedClientException", "InvalidAccessKeyId", "InvalidIdentityToken", "Blocked", "NotAuthorized",
	}
}

func conflictCodes() []string {
	return []string{
		"DependencyViolation", "ResourceInUse", "IncorrectInstanceState", "IncorrectState", "InvalidGroup.InUse", "DuplicateLoadBalancerName",
		"DuplicateTargetGroupName", "DuplicateListener", "DuplicatePolicyName", "InvalidGroup.Duplicate", "InvalidPermission.Duplicate", "RouteAlreadyExists",
		"PriorRequestNotComplete", "TransactionInProgressException", "OperationNotPermitted",
	}
}

func quotaCodes() []string {
	return []string{
		"TooManyLoadBalancers", "TooManyTargetGroups", "TooManyListeners", "TooManyTargets", "TooManyRegistrationsForTargetId", "TooManyCertificates", "TooManyTags",
		"TooManyPolicies", "TooManyUniqueTargetGroupsPerLoadBalancer", "TargetGroupAssociationLimit", "RulesPerSecurityGroupLimitExceeded", "SecurityGroupLimitExceeded",
		"SecurityGroupsPerInterfaceLimitExceeded", "AddressLimitExceeded", "RouteLimitExceeded", "InsufficientFreeAddressesInSubnet", "TagLimitExceeded", "ResourceLimitExceeded",
	}
}

// absenceCodes say that the very object asked for does not exist.
func absenceCodes() []string {
	return []string{
		"InvalidInstanceID.NotFound", "LoadBalancerNotFound", "AccessPointNotFound", "TargetGroupNotFound", "ListenerNotFound", "InvalidGroup.NotFound",
		"InvalidGroupId.NotFound",
		"InvalidRoute.NotFound", "InvalidRouteTableID.NotFound", "InvalidSubnetID.NotFound", "InvalidPermission.NotFound", "PolicyNotFound", "InvalidNetworkInterfaceID.NotFound",
	}
}

// classOf finds the class of a failure by its code and status.
func classOf(code string, status int) error {
	switch {
	case slices.Contains(throttleCodes(), code):
		return cloudapi.ErrRateLimited
	case slices.Contains(refusalCodes(), code):
		return cloudapi.ErrUnauthorized
	case slices.Contains(absenceCodes(), code):
		return cloudapi.ErrNotFound
	case slices.Contains(conflictCodes(), code):
		return cloudapi.ErrConflict
	case slices.Contains(quotaCodes(), code):
		return cloudapi.ErrQuota
	case status >= http.StatusInternalServerError, code == "InternalError", code == "InternalFailure", code == "ServiceUnavailable",
		code == "Unavailable", code == "IDPCommunicationError", code == "":
		return cloudapi.ErrTransient
	}
	return cloudapi.ErrInvalid
}

// permissionRefused reports whether AWS refused one action for lack of a permission.
func permissionRefused(err error) bool {
	code := codeOf(err)
	return code == "UnauthorizedOperation" || strings.HasPrefix(code, "AccessDenied")
}

// codeOf returns the code of a failure that AWS told, or "".
func codeOf(err error) string {
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		return said.ErrorCode()
	}
	return ""
}

// apiError maps an error of the SDK to the common vocabulary and names the operation.
func apiError(err error, caught *cloudapi.LastResponse, operation string) error {
	if err == nil {
		return nil
	}
	if own, ok := errors.AsType[*cloudapi.Error](err); ok {
		return cloudapi.Describe(own, operation)
	}
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: operation, Message: err.Error(), Cause: err}
	if _, sent := caught.Last(); sent != nil {
		mapped.Message = sent.Error()
		return mapped
	}
	if answered, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		mapped.RequestID = answered.RequestID
		if answered.Response != nil {
			mapped.Status = answered.HTTPStatusCode()
		}
	}
	if said, ok := errors.AsType[smithy.APIError](err); ok {
		mapped.Message = said.ErrorCode() + ": " + said.ErrorMessage()
		mapped.Class = classOf(said.ErrorCode(), mapped.Status)
	}
	return mapped
}

// rootOf returns the name of the outermost element of an answer; "" if it is no XML.
func rootOf(body []byte) string {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	for {
		token, err := decoder.Token()
		if err != nil {
			return ""
		}
		if start, ok := token.(xml.StartElement); ok {
			return start.Name.Local
		}
	}
}

// answerClass is the class of an answer that concerns every call: throttling, a refused credential, a service that fails.
// Elastic Load Balancing throttles with 400, EC2 with 503.
func answerClass(status int, body []byte) error {
	if status < http.StatusBadRequest {
		return nil
	}
	var said struct {
		Code string `xml:"Error>Code"`
		EC2  string `xml:"Errors>Error>Code"`
	}
	_ = xml.Unmarshal(body, &said) // what is no answer of AWS's has no code
	code := said.Code + said.EC2
	if code == "" {
		return nil
	}
	class := classOf(code, status)
	if errors.Is(class, cloudapi.ErrRateLimited) {
		return class
	}
	// A missing permission concerns one action, not the credential.
	if errors.Is(class, cloudapi.ErrUnauthorized) && code != "UnauthorizedOperation" && !strings.HasPrefix(code, "AccessDenied") {
		return class
	}
	return nil
}

// refusedTarget reports whether AWS refused an instance that is gone, or not running any more.
func refusedTarget(err error) bool {
	code := codeOf(err)
	return strings.HasPrefix(code, "InvalidTarget") || strings.HasPrefix(code, "InvalidInstance")
}
