"""Prompts that should and should not make the knowledge agent run first, in seven languages.

Written before the rules were measured on them; `docs/decisions/knowledge-first-trigger.md` has the figures.
"""

from __future__ import annotations

SHOULD = {
    "en": [
        "What is the capital of Mongolia?", "Who painted Guernica?", "When was the printing press invented?",
        "How far is the Moon from the Earth?", "Which river flows through Baghdad?", "Why do leaves turn red?",
        "Explain how vaccines work", "Can you tell me who discovered penicillin?", "Define entropy",
        "How many bones does an adult human have?", "What caused the French Revolution?",
        "Where did the potato come from?",
    ],
    "de": [
        "Was ist die Hauptstadt der Mongolei?", "Wer hat Guernica gemalt?", "Wann wurde der Buchdruck erfunden?",
        "Wie weit ist der Mond von der Erde entfernt?", "Welcher Fluss fließt durch Bagdad?",
        "Warum färben sich Blätter rot?", "Erkläre die Relativitätstheorie", "Bitte sagen, wer das Penizillin entdeckt hat",
        "Wie viele Einwohner hat Wien?", "In welchem Jahr fiel die Berliner Mauer?",
        "Kannst du mir sagen, wie hoch der Kilimandscharo ist?", "aktueller Bundespräsident von Österreich",
    ],
    "fr": [
        "Quelle est la capitale de la Mongolie ?", "Qui a peint Guernica ?", "Quand l'imprimerie a-t-elle été inventée ?",
        "À quelle distance se trouve la Lune ?", "Quel fleuve traverse Bagdad ?", "Pourquoi le ciel est-il bleu ?",
        "Explique la photosynthèse", "Qu'est-ce que la matière noire ?", "Combien d'habitants compte Lyon ?",
        "En quelle année est tombé le mur de Berlin ?", "Où est né Victor Hugo ?", "Comment fonctionne un vaccin ?",
    ],
    "es": [
        "¿Cuál es la capital de Mongolia?", "¿Quién pintó el Guernica?", "¿Cuándo se inventó la imprenta?",
        "¿A qué distancia está la Luna?", "¿Qué río pasa por Bagdad?", "¿Por qué el cielo es azul?",
        "Explica la fotosíntesis", "¿Qué es la materia oscura?", "¿Cuántos habitantes tiene Sevilla?",
        "¿En qué año cayó el muro de Berlín?", "¿Dónde nació Cervantes?", "¿Cómo funciona una vacuna?",
    ],
    "it": [
        "Qual è la capitale della Mongolia?", "Chi ha dipinto Guernica?", "Quando fu inventata la stampa?",
        "Quanto dista la Luna dalla Terra?", "Quale fiume attraversa Baghdad?", "Perché il cielo è blu?",
        "Spiega la fotosintesi", "Che cos'è la materia oscura?", "Quanti abitanti ha Torino?",
        "In che anno cadde il muro di Berlino?", "Dove nacque Dante?", "Come funziona un vaccino?",
    ],
    "zh": [
        "蒙古的首都是哪里？", "格尔尼卡是谁画的？", "印刷术是什么时候发明的？", "月球离地球有多远？多少公里",
        "哪条河流经巴格达？", "天空为什么是蓝色的？", "解释一下光合作用", "暗物质是什么", "成都有多少人口？",
        "柏林墙是哪一年倒塌的？", "鲁迅出生在哪里？", "疫苗如何起作用？",
    ],
    "ru": [
        "Какая столица Монголии?", "Кто написал Гернику?", "Когда изобрели книгопечатание?",
        "Сколько километров до Луны?", "Почему небо голубое?", "Что такое тёмная материя?",
    ],
}  # fmt: skip
SHOULD_NOT = {
    "en": [
        "what is the current branch?", "What is the latest commit?", "Which version is deployed on the server?",
        "Who changed the config last?", "What does this error mean?", "Run the tests and show me the output",
        "How are you?", "What did you just change?", "Where is the database configured?",
        "Why is the build red?", "Rename the current file", "Is the server running?",
    ],
    "de": [
        "Was ist der aktuelle Branch?", "Was macht diese Funktion?", "Wo liegt die Konfiguration?",
        "Behebe den Fehler im Parser", "Wer bist du?", "Was hast du gerade geändert?",
        "Schreibe einen Test für das Modul", "Welche Dateien hat der letzte Commit geändert?", "Hallo",
        "Fasse das angehängte Dokument zusammen", "Warum schlägt der Test fehl?", "Wie geht es dir?",
    ],
    "fr": [
        "Quelle est la branche actuelle ?", "Que fait cette fonction ?", "Où est le fichier de configuration ?",
        "Corrige l'erreur dans le module", "Qui es-tu ?", "Qu'as-tu modifié ?", "Écris un test pour la classe",
        "Quels fichiers le dernier commit a-t-il changés ?", "Bonjour", "Résume le document ci-joint",
        "Pourquoi le test échoue-t-il ?", "Comment vas-tu ?",
    ],
    "es": [
        "¿Cuál es la rama actual?", "¿Qué hace esta función?", "¿Dónde está el archivo de configuración?",
        "Arregla el error del módulo", "¿Quién eres?", "¿Qué has cambiado en el código?", "Escribe una prueba para la clase",
        "¿Qué archivos cambió el último commit?", "Hola", "Resume el documento adjunto", "¿Por qué falla la prueba?",
        "¿Qué puedes hacer?",
    ],
    "it": [
        "Qual è il branch attuale?", "Che cosa fa questa funzione?", "Dove si trova il file di configurazione?",
        "Correggi l'errore nel modulo", "Chi sei?", "Cosa puoi fare?", "Scrivi un test per la classe",
        "Quali file ha cambiato l'ultimo commit?", "Ciao", "Riassumi il documento allegato", "Perché il test fallisce?",
        "Traduci il testo in inglese",
    ],
    "zh": [
        "当前分支是什么？", "这个函数是做什么的？", "配置文件在哪里？", "修复解析器的错误", "你是谁？", "你刚才改了什么？",
        "为这个模块写测试", "上一次提交改了哪些文件？", "你好", "总结附件里的文档", "测试为什么失败？", "我们决定了什么？",
    ],
    "ru": [
        "Какая сейчас ветка?", "Что делает эта функция?", "Где лежит файл настроек?", "Исправь ошибку в модуле",
        "Кто ты?", "Почему падает тест?",
    ],
}  # fmt: skip
