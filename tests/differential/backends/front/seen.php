<?php
// What the scripts of this folder have in common.

function setting(string $name): string
{
    return getenv($name) ?: $_SERVER[$name] ?? $_SERVER["REDIRECT_$name"] ?? '';
}

// An order comes into being, of the number that the test has chosen.
function create(): never
{
    $order = (int) $_SERVER['HTTP_X_NEW'];
    sighting('create', (string) $order, 'create');
    http_response_code(201);
    header('Content-Type: application/json');
    echo json_encode(['orderId' => $order]);
    exit;
}

function see(bool $settle, mixed $raw, string $via): void
{
    $order = is_array($raw) ? (int) reset($raw) : (int) $raw;
    if ($order < 1) {
        return; // no such order
    }
    sighting($settle ? 'settle' : 'lookup', (string) $order, $via);
}

function sighting(string $what, string $order, string $via): void
{
    $line = json_encode([
        'case' => $_SERVER['HTTP_X_CASE'] ?? '', 'backend' => setting('BACKEND'),
        'what' => $what, 'order' => $order,
        'key' => $_SERVER['HTTP_X_ORDERGATE_KEY'] ?? '', 'via' => $via,
    ], JSON_INVALID_UTF8_SUBSTITUTE);
    file_put_contents(setting('SIGHTINGS'), $line . "\n", FILE_APPEND | LOCK_EX);
}

// A JSON body is a form.
if (preg_match('#[/+]json#i', $_SERVER['CONTENT_TYPE'] ?? '')) {
    $_POST = (array) json_decode(file_get_contents('php://input'), true);
}

// The method that counts.
function method(): string
{
    $headers = ['HTTP_X_HTTP_METHOD_OVERRIDE', 'HTTP_X_METHOD_OVERRIDE', 'HTTP_X_HTTP_METHOD'];
    foreach ($headers as $header) {
        if (!empty($_SERVER[$header])) {
            return strtoupper(trim($_SERVER[$header]));
        }
    }
    $field = $_POST['_method'] ?? $_GET['_method'] ?? $_COOKIE['_method'] ?? '';
    if (is_string($field) && $field !== '') {
        return strtoupper(trim($field));
    }
    return strtoupper($_SERVER['REQUEST_METHOD']);
}

const READ = ['GET', 'HEAD'];
