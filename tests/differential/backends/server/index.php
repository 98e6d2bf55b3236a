<?php
// Order service that records the headers which PHP takes for ordergate's, as one JSON line
// for each request, in $SIGHTINGS. It answers a create with the order of the query.

$names = array_filter(array_keys($_SERVER), fn($name) => preg_match('/^HTTP_X_(ORDERGATE_|ORIGINAL_URL|REWRITE_URL)/', $name));
file_put_contents(getenv('SIGHTINGS') ?: $_SERVER['SIGHTINGS'], json_encode([
    'case' => $_SERVER['HTTP_X_CASE'] ?? '',
    'headers' => (object) array_intersect_key($_SERVER, array_flip($names)),
], JSON_INVALID_UTF8_SUBSTITUTE) . "\n", FILE_APPEND | LOCK_EX);
header('Content-Type: application/json');
echo json_encode(['orderId' => (int) ($_GET['new'] ?? 0)]);
