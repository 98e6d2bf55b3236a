package order

// Reason says why a request is refused.
type Reason int8

// The reasons. Their texts are constant: they quote nothing of the request.
const (
	NoReason Reason = iota
	MissingID
	MalformedID
	RepeatedID
	DifferentIDs
	RepeatedInList
	PathSpelling
	PathNear
	FrontController
	OtherMethod
	MethodOverride
	URLOverride
	HostOverride
	ParameterSpelling
	ParameterAlias
	TooManyParameters
	CookieAlias
	HeaderAlias
	FormBody
	ContentType
	ContentEncoding
	BodyTooLarge
	BadJSON
	JSONAlias
	BadForm
	MissingLimit
	MalformedLimit
	RepeatedLimit
	MissingHeader
	MalformedHeader
	RepeatedHeader
	HeadersTooLarge
	TrailersAlone
	MissingKey
	MalformedKey
	RepeatedKey
	LongKey
	MissingPart
	MalformedPart
	RepeatedPart
	reasons
)

// Reasons is the number of reasons, for tables indexed by one.
const Reasons = int(reasons)

// reasonTexts are, for each reason, its name in metrics, the part of the request that it
// concerns, and a sentence for people.
var reasonTexts = [Reasons]struct{ name, part, text string }{
	NoReason:          {"none", "", ""},
	MissingID:         {"missing_id", "id", "the request names no order"},
	MalformedID:       {"malformed_id", "id", "the order ID is malformed"},
	RepeatedID:        {"repeated_id", "id", "the order ID is given more than once"},
	DifferentIDs:      {"different_ids", "id", "the request names different orders in different places"},
	RepeatedInList:    {"repeated_in_list", "id", "the list names an order twice"},
	PathSpelling:      {"path_spelling", "path", "the path is not spelt in its plain form"},
	PathNear:          {"path_near", "path", "the path may be read as one that a rule guards"},
	FrontController:   {"front_controller", "path", "the request may reach a guarded path through a front controller"},
	OtherMethod:       {"other_method", "method", "the path is guarded under another method"},
	MethodOverride:    {"method_override", "method", "the request overrides its method"},
	URLOverride:       {"url_override", "header", "a header overrides the path"},
	HostOverride:      {"host_override", "header", "the host can be read in two ways, or a header names another"},
	ParameterSpelling: {"parameter_spelling", "query", "the query is not spelt in its plain form"},
	ParameterAlias:    {"parameter_alias", "query", "a parameter may be read as the order ID or a route"},
	TooManyParameters: {"too_many_parameters", "query", "there are too many parameters"},
	CookieAlias:       {"cookie_alias", "cookie", "a cookie may be read as the order ID"},
	HeaderAlias:       {"header_alias", "header", "a header may be read as the order ID"},
	FormBody:          {"form_body", "body", "a body may override the order ID"},
	ContentType:       {"content_type", "body", "the content type is not the rule's"},
	ContentEncoding:   {"content_encoding", "body", "the body is encoded"},
	BodyTooLarge:      {"body_too_large", "body", "the body is too large"},
	BadJSON:           {"bad_json", "body", "the body is not one plain JSON object"},
	JSONAlias:         {"json_alias", "body", "a member may be read as the order ID"},
	BadForm:           {"bad_form", "body", "the form is not spelt in its plain form"},
	MissingLimit:      {"missing_limit", "limit", "the request does not have the ID that its limit is for"},
	MalformedLimit:    {"malformed_limit", "limit", "the ID that the limit is for is malformed"},
	RepeatedLimit:     {"repeated_limit", "limit", "the ID that the limit is for is given more than once"},
	MissingHeader:     {"missing_header", "header", "a header that a condition of the settlement needs is missing"},
	MalformedHeader:   {"malformed_header", "header", "a header that a condition of the settlement needs is malformed"},
	RepeatedHeader:    {"repeated_header", "header", "a header that a condition of the settlement needs is given more than once, or in another spelling"},
	HeadersTooLarge:   {"headers_too_large", "header", "the request's headers leave no room for those of its locks"},
	TrailersAlone:     {"trailers_alone", "body", "the request has trailers and no body"},
	MissingKey:        {"missing_key", "key", "the request has no idempotency key"},
	MalformedKey:      {"malformed_key", "key", "the idempotency key is malformed"},
	RepeatedKey:       {"repeated_key", "key", "a header of the idempotency key is given more than once"},
	LongKey:           {"long_key", "key", "a header of the idempotency key has more than 4,096 bytes"},
	MissingPart:       {"missing_part", "part", "the request lacks a part of the order's ID"},
	MalformedPart:     {"malformed_part", "part", "a part of the order's ID is malformed"},
	RepeatedPart:      {"repeated_part", "part", "a part of the order's ID is given more than once"},
}

// String returns the sentence for people.
func (r Reason) String() string { return reasonTexts[r].text }

// Name returns the reason's name for metrics and logs.
func (r Reason) Name() string { return reasonTexts[r].name }

// Part returns the part of the request that the reason concerns: id, part, key, limit, path,
// method, header, query, cookie or body.
func (r Reason) Part() string { return reasonTexts[r].part }
